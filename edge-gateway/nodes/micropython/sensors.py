# Drivers. Each has read(), which returns °C and percent and raises an Exception when the
# sensor has nothing true to say. Drivers of DHT22 and DS18B20 are MicroPython's, which for
# a wrong checksum raise no narrower one.
import struct
import time

import machine


def open(config):
    kind = config.SENSOR
    if kind == "dht22":
        return DHT22(config.PIN)
    if kind == "ds18b20+dht22":
        return Both(DS18B20(config.ONE_WIRE_PIN), DHT22(config.PIN))
    if kind in ("sht31", "bme280"):
        make = getattr(machine, "SoftI2C", None) or machine.I2C
        i2c = make(scl=machine.Pin(config.SCL), sda=machine.Pin(config.SDA))
        return SHT31(i2c) if kind == "sht31" else BME280(i2c)
    raise ValueError("SENSOR: " + kind)


class DHT22:
    def __init__(self, pin):
        import dht

        self._dht = dht.DHT22(machine.Pin(pin))

    def read(self):
        self._dht.measure()  # the driver compares the checksum
        temperature, humidity = self._dht.temperature(), self._dht.humidity()
        if temperature == 0 and humidity == 0:  # zeros have a right checksum: no sensor
            raise ValueError("nothing but zeros")
        return temperature, humidity


class DS18B20:
    def __init__(self, pin):
        import ds18x20
        import onewire

        self._bus = ds18x20.DS18X20(onewire.OneWire(machine.Pin(pin)))

    def temperature(self):
        found = self._bus.scan()
        if not found:
            raise ValueError("no DS18B20 on the bus")
        self._bus.convert_temp()
        time.sleep_ms(750)
        value = self._bus.read_temp(found[0])  # the driver compares the checksum
        if value == 85:  # what the register holds before the first conversion
            raise ValueError("the DS18B20 did not convert: look at its power")
        return value


class Both:
    def __init__(self, thermometer, hygrometer):
        self._thermometer, self._hygrometer = thermometer, hygrometer

    def read(self):
        return self._thermometer.temperature(), self._hygrometer.read()[1]


class SHT31:
    def __init__(self, i2c, address=0x44):
        self._i2c, self._address = i2c, address

    def read(self):
        self._i2c.writeto(self._address, b"\x24\x00")  # one measurement, high repeatability
        time.sleep_ms(20)  # 15 ms at most, says the datasheet
        raw = self._i2c.readfrom(self._address, 6)
        for word in (raw[0:3], raw[3:6]):
            if crc8(word[:2]) != word[2]:
                raise ValueError("wrong checksum of the SHT31")
        t, h = struct.unpack(">HxH", raw)
        return -45 + 175 * t / 65535, 100 * h / 65535


# Sensirion's checksum: polynomial 0x31, begun at 0xFF.
def crc8(data):
    crc = 0xFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ 0x31 if crc & 0x80 else crc << 1) & 0xFF
    return crc


class BME280:
    def __init__(self, i2c, address=0x76):
        self._i2c, self._address = i2c, address
        self._calibration = None

    # Reads the numbers of this piece (datasheet, table 16), once. A board without the
    # sensor still starts, and says so with each reading.
    def _calibrate(self):
        if self._i2c.readfrom_mem(self._address, 0xD0, 1)[0] != 0x60:
            raise ValueError("the chip is no BME280; a BMP280 has no humidity")
        t = struct.unpack("<Hhh", self._i2c.readfrom_mem(self._address, 0x88, 6))
        h1 = self._i2c.readfrom_mem(self._address, 0xA1, 1)[0]
        h2, h3, e4, e5, e6, h6 = struct.unpack("<hBbBbb", self._i2c.readfrom_mem(self._address, 0xE1, 7))
        self._calibration = t, (h1, h2, h3, e4 << 4 | e5 & 0x0F, e6 << 4 | e5 >> 4, h6)

    def read(self):
        if self._calibration is None:
            self._calibrate()
        self._i2c.writeto_mem(self._address, 0xF2, b"\x01")  # humidity once
        self._i2c.writeto_mem(self._address, 0xF4, b"\x21")  # temperature once, no pressure, now
        time.sleep_ms(15)  # 7.1 ms at most by the datasheet's 9.1
        raw = self._i2c.readfrom_mem(self._address, 0xFA, 5)
        t = raw[0] << 12 | raw[1] << 4 | raw[2] >> 4
        h = raw[3] << 8 | raw[4]
        if t == 0x80000 or h == 0x8000:  # what the registers hold without a measurement
            raise ValueError("the BME280 did not measure")
        fine = self._fine(t)
        return fine / 5120, self._humidity(h, fine)

    # The temperature in units of 1/5120 °C (datasheet, 4.2.3), in floating point.
    def _fine(self, raw):
        t1, t2, t3 = self._calibration[0]
        return (raw / 16384 - t1 / 1024) * t2 + (raw / 131072 - t1 / 8192) ** 2 * t3

    def _humidity(self, raw, fine):
        h1, h2, h3, h4, h5, h6 = self._calibration[1]
        h = fine - 76800
        h = (raw - (h4 * 64 + h5 / 16384 * h)) * (
            h2 / 65536 * (1 + h6 / 67108864 * h * (1 + h3 / 67108864 * h))
        )
        return min(100, max(0, h * (1 - h1 * h / 524288)))
