import border


class DS18X20:
    def __init__(self, bus):
        pass

    def scan(self):
        return [b"\x28\x01\x02\x03\x04\x05\x06\x07"]

    def convert_temp(self):
        pass

    def read_temp(self, rom):
        return border.room()[0]
