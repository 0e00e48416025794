package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	client "github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// It connects with its first acquire.
type rueidis struct {
	address  string
	validity time.Duration
	mu       sync.Mutex
	locker   rueidislock.Locker
}

type rueidisHold struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// One key, as its documentation advises for one server, and the tracking that Redis 7.0.5 and later can do.
func (library *rueidis) connected() (rueidislock.Locker, error) {
	library.mu.Lock()
	defer library.mu.Unlock()
	if library.locker != nil {
		return library.locker, nil
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   client.ClientOption{InitAddress: []string{library.address}},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    library.validity,
		TryNextAfter:   time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	library.locker = locker
	return locker, nil
}

func (library *rueidis) try(name string, _ time.Duration) (hold, error) {
	locker, err := library.connected()
	if err != nil {
		return nil, err
	}
	return held(locker.TryWithContext(context.Background(), name))
}

func (library *rueidis) acquire(ctx context.Context, name string, _ time.Duration) (hold, error) {
	locker, err := library.connected()
	if err != nil {
		return nil, err
	}
	return held(locker.WithContext(ctx, name))
}

func held(ctx context.Context, cancel context.CancelFunc, err error) (hold, error) {
	if errors.Is(err, rueidislock.ErrNotLocked) {
		return nil, fmt.Errorf("%w: %w", errBusy, err)
	}
	return rueidisHold{ctx, cancel}, err
}

func (hold rueidisHold) release() error {
	hold.cancel()
	return nil
}

func (hold rueidisHold) extend() error { return errors.New("it renews by itself") }

func (hold rueidisHold) state() (bool, *time.Duration) { return hold.ctx.Err() == nil, nil }
