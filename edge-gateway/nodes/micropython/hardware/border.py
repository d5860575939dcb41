# Stands in for the hardware in tests, where the board's pins and chips begin. A test
# that holds the other end of stdin and stdout answers what the hardware is asked: it
# says what sensors measure, and moves time. Without such a test (BORDER is not set) the
# sensors measure what ROOM says, and time is the machine's.
import os
import sys

held = os.getenv("BORDER") is not None


def ask(*question):
    print("@" + " ".join(str(word) for word in question))
    answer = sys.stdin.readline()
    if not answer:
        sys.exit()
    return answer.split()


# What the sensors measure: °C and percent.
def room():
    if held:
        answer = ask("measure")
        if answer[0] == "error":
            raise OSError(110)
    else:
        answer = (os.getenv("ROOM") or "22.5 41").split()
    return float(answer[0]), float(answer[1])


# Whether the access point is there.
def access_point():
    return not held or ask("wifi")[0] == "1"


# Bytes of a chip, by what was read or written.
def chip(*question):
    return bytes(int(b) for b in ask(*question))
