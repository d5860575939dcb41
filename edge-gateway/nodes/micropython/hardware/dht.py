import border


class DHT22:
    def __init__(self, pin):
        pass

    def measure(self):
        self._measured = border.room()

    def temperature(self):
        return self._measured[0]

    def humidity(self):
        return self._measured[1]
