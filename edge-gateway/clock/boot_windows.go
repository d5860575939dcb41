package clock

import "golang.org/x/sys/windows"

// ThisBoot stands for this run of the program, since Windows has no id of a boot.
// GetTickCount64 goes on while the machine sleeps.
func ThisBoot() Boot { return Boot{ID: bootID(""), Uptime: windows.DurationSinceBoot} }
