package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type redsyncs struct{ redsync *redsync.Redsync }

type redsyncHold struct{ mutex *redsync.Mutex }

func newRedsync(address string) redsyncs {
	client := redis.NewClient(&redis.Options{Addr: address})
	return redsyncs{redsync.New(goredis.NewPool(client))}
}

func (library redsyncs) mutex(name string, ttl time.Duration) *redsync.Mutex {
	return library.redsync.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(1_000_000))
}

func (library redsyncs) try(name string, ttl time.Duration) (hold, error) {
	mutex := library.mutex(name, ttl)
	return redsyncHold{mutex}, told(mutex.TryLock())
}

func (library redsyncs) acquire(ctx context.Context, name string, ttl time.Duration) (hold, error) {
	mutex := library.mutex(name, ttl)
	return redsyncHold{mutex}, told(mutex.LockContext(ctx))
}

func (hold redsyncHold) release() error {
	ok, err := hold.mutex.Unlock()
	if err == nil && !ok {
		return fmt.Errorf("%w: Unlock returned false", errLost)
	}
	return ended(err)
}

func (hold redsyncHold) extend() error {
	ok, err := hold.mutex.Extend()
	if err == nil && !ok {
		return fmt.Errorf("%w: Extend returned false", errLost)
	}
	return ended(err)
}

func (hold redsyncHold) state() (bool, *time.Duration) {
	valid := time.Until(hold.mutex.Until())
	return valid > 0, &valid
}

func told(err error) error {
	var taken *redsync.ErrTaken
	var unreachable *redsync.RedisError
	switch {
	case errors.As(err, &taken), errors.Is(err, redsync.ErrFailed):
		return fmt.Errorf("%w: %w", errBusy, err)
	case errors.Is(err, redsync.ErrLockAlreadyExpired), errors.Is(err, redsync.ErrExtendFailed):
		return fmt.Errorf("%w: %w", errLost, err)
	case errors.As(err, &unreachable):
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return err
}

// A holder is told by the same error as a waiter that somebody else has it.
func ended(err error) error {
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return told(err)
}
