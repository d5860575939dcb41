# Stands in for the hardware in tests, where the board's pins and chips begin. A test
# that holds the other end of stdin and stdout answers what the hardware is asked: it
# says what sensors measure, and moves time. Without such a test (BORDER is not set) the
# sensors measure what ROOM says, and time is the machine's.
import os
import sys

import utime

held = os.getenv("BORDER") is not None
full = False  # whether a board's heap has no room for a connection
waited = 0  # for the test, in ms of the machine's time


def ask(*question):
    global waited
    begun = utime.ticks_ms()
    print("@" + " ".join(str(word) for word in question))
    answer = sys.stdin.readline()
    waited += utime.ticks_ms() - begun
    if not answer:
        sys.exit()
    return answer.split()


# What the sensors measure: °C and percent.
def room():
    global full
    if held:
        answer = ask("measure")
        if answer[0] == "error":
            raise OSError(110)
        full = answer[-1] == "full"
        if answer[0] == "checksum":
            raise Exception("checksum error")  # as MicroPython's dht.py and ds18x20.py
    else:
        answer = (os.getenv("ROOM") or "22.5 41").split()
    return float(answer[0]), float(answer[1])


# Whether the access point is there.
def access_point():
    return not held or ask("wifi")[0] == "1"


# Bytes of a chip, by what was read or written.
def chip(*question):
    return bytes(int(b) for b in ask(*question))
