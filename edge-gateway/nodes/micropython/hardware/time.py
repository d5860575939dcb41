import border
import utime

PERIOD = 1 << 30  # of a board's counter, which is 12 days; begun so that each test sees it wrap
_passed = PERIOD - 100000  # where a test holds time: how busy the machine is does not count
slept = 0


def ticks_ms():
    return (_passed if border.held else utime.ticks_ms()) % PERIOD


def sleep_ms(ms):
    global _passed, slept
    if border.held:
        answer = border.ask("sleep", ms)
        _passed += int(answer[0]) if answer else ms  # days, where the test says so
        slept += ms
    else:
        utime.sleep_ms(ms)


def ticks_add(ticks, ms):
    return (ticks + ms) % PERIOD


def ticks_diff(a, b):
    return (a - b + PERIOD // 2) % PERIOD - PERIOD // 2
