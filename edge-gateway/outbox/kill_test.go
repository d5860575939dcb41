package outbox

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

// childRound makes the test binary a child that appends to the outbox of its working
// folder until it is killed, and prints each message once it is durable.
const childRound = "OUTBOX_TEST_ROUND"

func TestMain(m *testing.M) {
	if round := os.Getenv(childRound); round != "" {
		fmt.Fprintln(os.Stderr, appendForEver(round))
		os.Exit(1) // and never on to the tests: they would start children again, without end
	}
	os.Exit(m.Run())
}

func appendForEver(round string) error {
	box, err := Open(".", Options{Clock: time.Now, MaxBytes: 4 << 20}) // of small segments
	if err != nil {
		return err
	}
	var mu sync.Mutex
	failed := make(chan error)
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				m := fmt.Sprintf("%s/%d/%d/%s", round, w, i, strings.Repeat("x", i%3000))
				if err := box.Append(rec(m)); err != nil {
					failed <- err
				}
				mu.Lock()
				fmt.Println(m)
				mu.Unlock()
			}
		}()
	}
	return <-failed
}

// TestKill kills a process that appends, again and again, and looks for every
// message of which it had said that it is durable.
func TestKill(t *testing.T) {
	t.Parallel()
	program := must.Get(os.Executable())(t)
	dir := t.TempDir()
	said := map[string]bool{}
	for round := range 4 {
		child := exec.CommandContext(t.Context(), program)
		child.Dir, child.Env = dir, append(os.Environ(), fmt.Sprintf("%s=%d", childRound, round))
		child.Stderr = os.Stderr
		output := must.Get(child.StdoutPipe())(t)
		must.Do(t, child.Start())
		lines := bufio.NewReader(output)
		for i := 0; ; i++ {
			line, err := lines.ReadString('\n')
			if err != nil {
				break // a half line was not said
			}
			said[strings.TrimSuffix(line, "\n")] = true
			if i == 100+37*round {
				must.Do(t, child.Process.Kill())
			}
		}
		_ = child.Wait()
	}
	box := open(t, dir, options())
	found := map[string]int{}
	for _, m := range drain(t, box, 64) {
		found[m]++
	}
	for m := range said {
		must.Equal(t, fmt.Sprintf("copies of message %.20q", m), 1, found[m])
	}
	if len(said) < 400 {
		t.Errorf("only %d messages were durable before the kills", len(said))
	}
	must.Equal(t, "torn tails count as damaged places", 0, box.Stats().Damaged)
}
