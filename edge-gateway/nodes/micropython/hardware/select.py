# Sockets are real. Where a test holds time, a wait that is in vain takes its time there;
# NETWORK says how many times as fast as the machine's time passes while nodes wait.
import os

import border
import time
import uselect
import utime

POLLIN, POLLOUT = uselect.POLLIN, uselect.POLLOUT
speed = int(os.getenv("NETWORK") or 0)


class poll:
    def __init__(self):
        if border.full:
            raise MemoryError("memory allocation failed")
        self._poll = uselect.poll()
        self.register = self._poll.register

    def poll(self, ms):
        if not border.held:
            return self._poll.poll(ms)
        begun = utime.ticks_ms()
        ready = self._poll.poll(ms // (speed or 1))
        passed = min(ms, utime.ticks_diff(utime.ticks_ms(), begun) * speed) if ready else ms
        if passed:
            time.sleep_ms(passed)
        return ready
