import border

STA_IF, AP_IF = 0, 1


class WLAN:
    def __init__(self, interface):
        self._joined, self._interface = False, interface

    def active(self, on):
        if self._interface == AP_IF and not on:
            print("access point off")

    def connect(self, name, password):
        self._joined = True

    def disconnect(self):
        self._joined = False

    def isconnected(self):
        self._joined = self._joined and border.access_point()
        return self._joined

    def ifconfig(self):
        return ("192.168.1.20", "255.255.255.0", "192.168.1.1", "192.168.1.1")
