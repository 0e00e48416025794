package main

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

type rueidisSubject struct{ address string }

type rueidisClient struct{ locker rueidislock.Locker }

type rueidisLock struct {
	locker rueidislock.Locker
	name   string
	cancel context.CancelFunc
}

// One key, as its documentation advises for one server, and the tracking that Redis 7.0.5 and later can do.
func (subject rueidisSubject) Connect() (Client, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{subject.address}},
		KeyPrefix:      "rueidislock",
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	return rueidisClient{locker}, err
}

func (client rueidisClient) Lock(name string) Lock {
	return &rueidisLock{locker: client.locker, name: name}
}

func (client rueidisClient) Close() { client.locker.Close() }

func (lock *rueidisLock) Acquire() error {
	_, cancel, err := lock.locker.WithContext(context.Background(), lock.name)
	lock.cancel = cancel
	return err
}

func (lock *rueidisLock) Release() error {
	lock.cancel()
	return nil
}
