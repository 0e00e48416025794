package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	hold  = 3 * time.Millisecond
	pause = 2 * time.Millisecond
)

// A Stage is a workload on a subject: the same as in benchmarks/load.
type Stage struct {
	kind    string
	clients []Client
	locks   []Lock
	// Of which client each lock is.
	owners []int
}

// Enter connects.
func Enter(subject Subject, workload string) (*Stage, error) {
	kind, rest, _ := strings.Cut(workload, "-")
	many, err := strconv.Atoi(rest)
	if err != nil || !slices.Contains([]string{"own", "one", "two", "crowd", "handoff"}, kind) {
		return nil, fmt.Errorf("there is no workload %q here", workload)
	}
	stage := &Stage{kind: kind}
	tasks := many
	if kind == "two" {
		tasks = 2 * many
	}
	for number := range tasks {
		if number == 0 || kind == "crowd" || kind == "handoff" || kind == "two" && number == many {
			client, err := subject.Connect()
			if err != nil {
				stage.Leave()
				return nil, err
			}
			stage.clients = append(stage.clients, client)
		}
		name := kind
		if kind == "own" {
			name = fmt.Sprintf("own/%d", number)
		}
		owner := len(stage.clients) - 1
		stage.locks = append(stage.locks, stage.clients[owner].Lock(name))
		stage.owners = append(stage.owners, owner)
	}
	return stage, nil
}

// Leave disconnects.
func (stage *Stage) Leave() {
	for _, client := range stage.clients {
		client.Close()
	}
}

type part struct {
	pairs int
	times []time.Duration
	ended time.Time
	err   error
}

type last struct {
	at     time.Time
	client int
}

// Round plays for so long.
func (stage *Stage) Round(length time.Duration) (map[string]any, error) {
	parts := make([]part, len(stage.locks))
	var released atomic.Pointer[last]
	var inside atomic.Int32
	var done sync.WaitGroup
	started := time.Now()
	deadline := started.Add(length)
	for number, lock := range stage.locks {
		done.Add(1)
		go func() {
			defer done.Done()
			part := &parts[number]
			switch stage.kind {
			case "own":
				part.err = own(lock, part, deadline)
			case "one", "two", "crowd":
				part.err = one(lock, part, deadline, &inside)
			default:
				part.err = handOff(lock, part, deadline, number, &released)
			}
		}()
	}
	done.Wait()
	return stage.figures(parts, started)
}

func own(lock Lock, part *part, deadline time.Time) error {
	begun := time.Now()
	for begun.Before(deadline) {
		if err := lock.Acquire(); err != nil {
			return err
		}
		if err := lock.Release(); err != nil {
			return err
		}
		ended := time.Now()
		part.note(ended.Sub(begun), ended)
		begun = ended
	}
	return nil
}

func one(lock Lock, part *part, deadline time.Time, inside *atomic.Int32) error {
	for {
		begun := time.Now()
		if !begun.Before(deadline) {
			return nil
		}
		if err := lock.Acquire(); err != nil {
			return err
		}
		acquired := time.Now()
		if others := inside.Add(1) - 1; others > 0 {
			return fmt.Errorf("it was granted beside %d others", others)
		}
		inside.Add(-1)
		if err := lock.Release(); err != nil {
			return err
		}
		if acquired.Before(deadline) {
			part.note(acquired.Sub(begun), acquired)
		}
	}
}

func handOff(lock Lock, part *part, deadline time.Time, client int, released *atomic.Pointer[last]) error {
	for {
		begun := time.Now()
		if !begun.Before(deadline) {
			return nil
		}
		if err := lock.Acquire(); err != nil {
			return err
		}
		acquired := time.Now()
		if from := released.Load(); from != nil && from.client != client && begun.Before(from.at) && acquired.Before(deadline) {
			part.note(acquired.Sub(from.at), acquired)
		}
		if acquired.Before(deadline) {
			time.Sleep(hold)
		}
		released.Store(&last{time.Now(), client})
		if err := lock.Release(); err != nil {
			return err
		}
		time.Sleep(pause)
	}
}

func (part *part) note(took time.Duration, ended time.Time) {
	part.pairs++
	part.times = append(part.times, took)
	part.ended = ended
}

func (stage *Stage) figures(parts []part, started time.Time) (map[string]any, error) {
	var times []time.Duration
	// Of each client; of each goroutine, where there is but one.
	pairs := make([]int, len(parts))
	if len(stage.clients) > 1 {
		pairs = make([]int, len(stage.clients))
	}
	ended, sum := started, 0
	for number, part := range parts {
		if part.err != nil {
			return nil, part.err
		}
		times = append(times, part.times...)
		if len(stage.clients) > 1 {
			number = stage.owners[number]
		}
		pairs[number] += part.pairs
		sum += part.pairs
		if part.ended.After(ended) {
			ended = part.ended
		}
	}
	figures := map[string]any{}
	if len(times) > 0 {
		slices.Sort(times)
		micros := func(quantile float64) float64 {
			return float64(times[int(quantile*float64(len(times)-1))]) / float64(time.Microsecond)
		}
		figures["us-p50"], figures["us-p99"] = micros(0.5), micros(0.99)
	}
	if stage.kind != "handoff" && sum > 0 {
		figures["pairs/s"] = float64(sum) / ended.Sub(started).Seconds()
		figures["pairs"] = sum
	}
	if slices.Contains([]string{"one", "two", "crowd"}, stage.kind) && sum > 0 {
		figures["share-min/max"] = float64(slices.Min(pairs)) / float64(slices.Max(pairs))
	}
	return figures, nil
}
