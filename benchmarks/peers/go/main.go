// Go's lock libraries, played by order: see benchmarks/load/src/serve.rs. The first argument is the server's URL, or those of
// several servers with commas between them.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// A Subject makes clients, each with connections of its own.
type Subject interface {
	Connect() (Client, error)
}

// A Client belongs to a process.
type Client interface {
	Lock(name string) Lock
	Close()
}

// A Lock belongs to a goroutine. Acquire waits for as long as it takes.
type Lock interface {
	Acquire() error
	Release() error
}

type player struct {
	subject Subject
	stage   *Stage
}

func main() {
	var hosts []string
	for text := range strings.SplitSeq(os.Args[1], ",") {
		server, err := url.Parse(text)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		hosts = append(hosts, server.Host)
	}
	players := map[string]*player{
		"rueidislock": {subject: rueidisSubject{hosts[0]}},
		"redsync":     {subject: redsyncSubject{hosts}},
	}
	say(map[string]any{"subjects": map[string]string{
		"rueidislock": version("github.com/redis/rueidis"),
		"redsync":     version("github.com/go-redsync/redsync/v4"),
	}})
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		answer, err := obey(players, strings.Fields(orders.Text()))
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		say(answer)
	}
}

func obey(players map[string]*player, words []string) (map[string]any, error) {
	if len(words) < 2 || players[words[1]] == nil {
		return nil, fmt.Errorf("this is no order: %q", words)
	}
	player, nothing := players[words[1]], map[string]any{}
	switch {
	case words[0] == "enter" && len(words) == 3:
		stage, err := Enter(player.subject, words[2])
		player.stage = stage
		return nothing, err
	case words[0] == "round" && len(words) == 3 && player.stage != nil:
		millis, err := strconv.Atoi(words[2])
		if err != nil {
			return nil, err
		}
		return player.stage.Round(time.Duration(millis) * time.Millisecond)
	case words[0] == "leave":
		if player.stage != nil {
			player.stage.Leave()
			player.stage = nil
		}
		return nothing, nil
	}
	return nil, fmt.Errorf("this is no order: %q", words)
}

func say(answer map[string]any) {
	line, err := json.Marshal(answer)
	if err != nil {
		line = []byte(`{"error":"an answer that is no JSON"}`)
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
