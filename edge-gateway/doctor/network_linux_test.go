package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/tooltest"
)

// alone makes the test binary a machine of its own: a process with no network
// but the one that the value, commands of ip(8), makes.
const alone = "DOCTOR_TEST_NETWORK"

// announced is the port that this machine's gateway announces; 0 for none.
const announced = "DOCTOR_TEST_PORT"

// deaf says that nothing listens at that port.
const deaf = "DOCTOR_TEST_DEAF"

func TestMain(m *testing.M) {
	if commands := os.Getenv(alone); commands != "" {
		if err := examineAlone(commands, os.Getenv(announced)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// examineAlone makes the network, starts a responder in it, and examines it as
// a gateway at port 8080 does, and as a laptop does.
func examineAlone(commands, port string) error {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	for command := range strings.SplitSeq(commands, "; ") {
		if output, err := exec.CommandContext(ctx, "ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, output)
		}
	}
	var number int
	if _, err := fmt.Sscan(port, &number); err != nil {
		return err
	}
	var announcing sync.WaitGroup
	defer announcing.Wait()
	defer stop()
	if number > 0 {
		a := announce.New(announce.Config{Port: number}, time.Now, logging.Discard())
		announcing.Go(func() { _ = a.Run(ctx) })
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf(":%d", number))
		if err != nil {
			return err
		}
		defer func() { _ = listener.Close() }()
		if os.Getenv(deaf) != "" {
			_ = listener.Close()
		}
		ready := func() bool {
			links := a.State().Links
			return len(links) > 0 && links[0].Phase == "ready"
		}
		for !ready() && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond) // between two polls of the condition
		}
	}
	gateway := &Report{}
	Config{Port: 8080, Clock: time.Now, here: true}.network(ctx, gateway, announce.State{})
	silent := &Report{}
	Config{Port: 8080, Clock: time.Now, here: true, MDNSDisabled: true}.network(ctx, silent, announce.State{})
	return errors.Join(gateway.Write(os.Stdout), silent.Write(os.Stdout), ExamineNetwork(ctx, Config{Clock: time.Now}).Write(os.Stdout))
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	const pair = "link set lo up; link add eth0 type veth peer name far; link set eth0 up; link set far up"
	const unrouted = pair + "; addr add 192.168.7.20/24 dev eth0"
	const addressed = unrouted + "; route add default dev eth0"
	for name, c := range map[string]struct {
		network, port string
		want          []string
	}{
		"a gateway that does not listen": {addressed, "8080", []string{
			"but no node can connect: connect: dial tcp 192.168.7.20:8080: connect: connection refused", "start the gateway there",
		}},
		"a gateway that is found": {addressed, "8080", []string{
			"a connection to 192.168.7.20:8080 succeeds",
			"ok       eth0 has 192.168.7.20/24\n           legacy monitor-gateway.local is 192.168.7.20\n",
			"QU     monitor-gateway.local is 192.168.7.20\n", "QM     monitor-gateway.local is 192.168.7.20\n",
			"browse monitor-gateway is monitor-gateway.local, port 8080 (version=1.0)",
			"ok       far has no IPv4 address",
			"Nodes that multicast does not reach are to be configured with http://192.168.7.20:8080.",
			"MDNS is false, nothing is announced",
			"A node here calls http://192.168.7.20:8080.\n\nEverything is in order.",
		}},
		"no route for multicast": {unrouted, "8080", []string{
			"ok       eth0 has 192.168.7.20/24\n", "browse not possible from here: eth0: browse: failed to bind to any multicast udp port",
			"A node here calls http://192.168.7.20:8080.\n\nEverything is in order.",
		}},
		"a gateway with another port": {addressed, "9000", []string{
			"PROBLEM  eth0 has 192.168.7.20/24", "port 9000", "the gateway should be on port 8080",
		}},
		"no gateway": {addressed, "0", []string{
			"PROBLEM  eth0 has 192.168.7.20/24\n           legacy no answer", "QU     no answer", "QM     no answer", "browse no answer",
			"let a firewall on this machine pass UDP port 5353", "multicast may be blocked on the way",
			"are to be configured with http://192.168.7.20:8080", "1 problem.",
		}},
		"a cable that is not plugged in": {addressed + "; link add eth1 type veth peer name far1; addr add 10.9.8.7/24 dev eth1; link set eth1 up", "8080", []string{
			"ok       eth1 is down", "a connection to 192.168.7.20:8080 succeeds", "Everything is in order.",
		}},
		"no multicast": {addressed + "; link set eth0 multicast off", "0", []string{
			"warning  eth0 has 192.168.7.20/24 and cannot do multicast", "are to be configured with http://192.168.7.20:8080",
			"nodes there must be configured with the address\n\nNo problem, 1 warning.", // of the gateway, which is not the laptop's
		}},
		"no address": {pair, "0", []string{
			"ok       eth0 has no IPv4 address; it is picked up when it gets one", "PROBLEM  no interface has an IPv4 address that",
		}},
		"no interface": {"link set lo up", "0", []string{"PROBLEM  no interface has an IPv4 address that"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// It waits as long as a person does, in which a machine that is busy may not come
			// to answer itself: once it must say all.
			var output, lacks string
			for range 5 {
				output, lacks = runAlone(t, c.network, c.port, strings.Contains(name, "not listen")), ""
				for _, text := range c.want {
					if !strings.Contains(output, text) {
						lacks = text
					}
				}
				if lacks == "" {
					return
				}
			}
			t.Errorf("no %q in:\n%s", lacks, output)
		})
	}
}

// runAlone runs this test binary on a network of its own.
func runAlone(t *testing.T, network, port string, isDeaf bool) string {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), alone+"="+network, announced+"="+port)
	if isDeaf {
		child.Env = append(child.Env, deaf+"=yes")
	}
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		own := func(id int) []syscall.SysProcIDMap {
			return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
		}
		child.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		child.SysProcAttr.UidMappings, child.SysProcAttr.GidMappings = own(os.Getuid()), own(os.Getgid())
	}
	output, err := child.CombinedOutput()
	_, missing := exec.LookPath("ip")
	if errors.Is(err, syscall.EPERM) || missing != nil {
		tooltest.Unable(t, "no network can be made here: %v", errors.Join(err, missing))
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return string(output)
}
