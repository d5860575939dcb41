import border
import utime

_passed = 0  # what a node has slept, where a test holds time: how busy the machine is does not count


def ticks_ms():
    return _passed if border.held else utime.ticks_ms()


def sleep_ms(ms):
    global _passed
    if border.held:
        border.ask("sleep", ms)
        _passed += ms
    else:
        utime.sleep_ms(ms)


ticks_add = utime.ticks_add
ticks_diff = utime.ticks_diff
