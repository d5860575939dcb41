# Runs at power on. What goes wrong here is shown on the serial console, and the board
# is started again: a node in a rack has nobody to press its button.
import sys
import time

import machine

import board
import config
import node
import sensors

# A watchdog cannot be stopped: once it runs, whoever stops the node has 1.6 to 8 s.
print("press Ctrl-C within 5 seconds to have the board for yourself")
time.sleep_ms(5000)
try:
    board.check(config)
    node.Node(config, sensors.open(config), board.Radio(config), board.Watchdog()).run()
except Exception as error:
    sys.print_exception(error)
    time.sleep_ms(10000)
    machine.reset()
