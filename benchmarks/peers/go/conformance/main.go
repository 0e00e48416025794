// Go's lock libraries as clients of the conformance suite: see benchmarks/conformance/src/process.rs. The arguments are the
// library, the URL of its server, and the TTL in milliseconds that a client has if its locks have none.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
)

// A library makes holds. An acquire ends when its context does.
type library interface {
	try(name string, ttl time.Duration) (hold, error)
	acquire(ctx context.Context, name string, ttl time.Duration) (hold, error)
}

type hold interface {
	release() error
	extend() error
	// Whether it counts as held, and how long it lasts; nil if the library does not say.
	state() (bool, *time.Duration)
}

// What an error means to the suite.
var (
	errBusy        = errors.New("taken")
	errLost        = errors.New("lost")
	errUnavailable = errors.New("unavailable")
)

type order struct {
	ID   uint64  `json:"id"`
	Do   string  `json:"do"`
	Of   uint64  `json:"of"`
	Name string  `json:"name"`
	TTL  int64   `json:"ttl"`
	Wait *uint64 `json:"wait"`
}

type answer map[string]any

// An acquire, from its order on.
type acquire struct {
	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	hold   hold
	gone   bool
}

var saying sync.Mutex

func main() {
	server, err := url.Parse(os.Args[2])
	millis, err2 := strconv.Atoi(os.Args[3])
	if err := errors.Join(err, err2); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	var library library
	module := "github.com/redis/rueidis"
	switch os.Args[1] {
	case "redsync":
		library, module = newRedsync(server.Host), "github.com/go-redsync/redsync/v4"
	default:
		library = &rueidis{address: server.Host, validity: time.Duration(millis) * time.Millisecond}
	}
	say(answer{"version": version(module)})
	acquires := map[uint64]*acquire{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var order order
		if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if order.Do == "acquire" {
			ctx, cancel := context.WithCancel(context.Background())
			acquires[order.ID] = &acquire{ctx: ctx, cancel: cancel}
			order.Of = order.ID
		}
		of := acquires[order.Of]
		if order.Do == "cancel" {
			of.cancel()
			go of.giveUp()
			say(answer{"id": order.ID})
			continue
		}
		go func() {
			done := of.obey(library, order)
			done["id"] = order.ID
			say(done)
		}()
	}
	// Nothing is released.
	os.Exit(0)
}

func (of *acquire) obey(library library, order order) answer {
	switch order.Do {
	case "acquire":
		ttl := time.Duration(order.TTL) * time.Millisecond
		hold, err := of.acquire(library, order, ttl)
		if order.Wait != nil && *order.Wait == 0 && errors.Is(err, errBusy) {
			return answer{"busy": true}
		}
		if err != nil {
			return failed(err)
		}
		of.mu.Lock()
		of.hold = hold
		gone := of.gone
		of.mu.Unlock()
		if gone {
			hold.release()
		}
		return answer{}
	case "release":
		return failed(of.hold.release())
	case "extend":
		if err := of.hold.extend(); err != nil {
			return failed(err)
		}
	}
	held, valid := of.hold.state()
	seen := answer{"state": "lost"}
	if held {
		seen["state"] = "held"
	}
	if valid != nil {
		seen["valid"] = max(valid.Milliseconds(), 0)
	}
	return seen
}

func (of *acquire) acquire(library library, order order, ttl time.Duration) (hold, error) {
	if order.Wait == nil {
		return library.acquire(of.ctx, order.Name, ttl)
	}
	if *order.Wait == 0 {
		return library.try(order.Name, ttl)
	}
	// The hold of a context may end with its deadline, so it has a context of its own for the wait.
	ctx, cancel := context.WithCancel(of.ctx)
	timer := time.AfterFunc(time.Duration(*order.Wait)*time.Millisecond, cancel)
	hold, err := library.acquire(ctx, order.Name, ttl)
	if err == nil && !timer.Stop() {
		// Too late for the one who waited.
		hold.release()
		return nil, errBusy
	}
	return hold, err
}

// Releases what was granted to one who does not wait any more.
func (of *acquire) giveUp() {
	of.mu.Lock()
	of.gone = true
	hold := of.hold
	of.mu.Unlock()
	if hold != nil {
		hold.release()
	}
}

func failed(err error) answer {
	kind := "other"
	switch {
	case err == nil:
		return answer{}
	case errors.Is(err, errBusy), errors.Is(err, context.Canceled):
		kind = "timeout"
	case errors.Is(err, errLost):
		kind = "lost"
	case errors.Is(err, errUnavailable):
		kind = "unavailable"
	}
	return answer{"error": kind, "message": err.Error()}
}

func say(answer answer) {
	saying.Lock()
	defer saying.Unlock()
	line, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func version(module string) string {
	build, _ := debug.ReadBuildInfo()
	if build != nil {
		for _, dependency := range build.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return "unknown"
}
