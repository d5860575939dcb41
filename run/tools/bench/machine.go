package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// machine is the machine of the measurement.
type machine struct {
	Date, CPU, System, Go, Commit string
	Cores                         int
	Memory                        string
	Load                          string // load average of the minute before
}

// describeMachine reads what is known of the machine; unknown fields stay empty.
func describeMachine(ctx context.Context, clock func() time.Time) machine {
	m := machine{
		Date: clock().UTC().Format("2006-01-02 15:04 MST"), System: runtime.GOOS + "/" + runtime.GOARCH,
		Go: runtime.Version(), Cores: runtime.NumCPU(), CPU: "unknown processor",
	}
	if model, ok := procField("/proc/cpuinfo", "model name"); ok {
		m.CPU = model
	}
	if total, ok := procField("/proc/meminfo", "MemTotal"); ok {
		if kib, err := strconv.ParseFloat(strings.TrimSuffix(total, " kB"), 64); err == nil {
			m.Memory = strconv.FormatFloat(kib/(1<<20), 'f', 1, 64) + " GiB"
		}
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(load), " ")
	}
	if commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
		m.Commit = strings.TrimSpace(string(commit))
	}
	return m
}

// procField returns the first value of a name in a file of /proc.
func procField(path, name string) (string, bool) {
	content, err := os.ReadFile(path) //nolint:gosec // the kernel's
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(content)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}
