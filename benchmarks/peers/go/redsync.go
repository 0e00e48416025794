package main

import (
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type redsyncSubject struct{ addresses []string }

type redsyncClient struct {
	clients []*redis.Client
	redsync *redsync.Redsync
}

type redsyncLock struct{ mutex *redsync.Mutex }

func (subject redsyncSubject) Connect() (Client, error) {
	var clients []*redis.Client
	var pools []pool.Pool
	for _, address := range subject.addresses {
		client := redis.NewClient(&redis.Options{Addr: address})
		clients = append(clients, client)
		pools = append(pools, goredis.NewPool(client))
	}
	return redsyncClient{clients, redsync.New(pools...)}, nil
}

func (client redsyncClient) Lock(name string) Lock {
	mutex := client.redsync.NewMutex("redsync:"+name,
		redsync.WithExpiry(30*time.Second),
		redsync.WithTries(1000),
		redsync.WithRetryDelay(10*time.Millisecond))
	return redsyncLock{mutex}
}

func (client redsyncClient) Close() {
	for _, client := range client.clients {
		client.Close()
	}
}

func (lock redsyncLock) Acquire() error { return lock.mutex.Lock() }

func (lock redsyncLock) Release() error {
	ok, err := lock.mutex.Unlock()
	if err == nil && !ok {
		return errors.New("the lock was lost")
	}
	return err
}
