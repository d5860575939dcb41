import border

STA_IF = 0


class WLAN:
    def __init__(self, interface):
        self._joined = False

    def active(self, on):
        pass

    def connect(self, name, password):
        self._joined = True

    def disconnect(self):
        self._joined = False

    def isconnected(self):
        self._joined = self._joined and border.access_point()
        return self._joined

    def ifconfig(self):
        return ("192.168.1.20", "255.255.255.0", "192.168.1.1", "192.168.1.1")
