# The one file to edit. Copy it with the others: mpremote cp *.py :
WIFI = "the network's name"
PASSWORD = "its password"

# "dht22", "sht31" or "bme280"; "ds18b20+dht22" takes the temperature of the first and
# the humidity of the second: a DS18B20 has none, and the gateway wants both.
SENSOR = "dht22"
PIN = 4  # data of a DHT22; on an ESP8266 14, on a Pico W 2
ONE_WIRE_PIN = 5  # data of a DS18B20; on an ESP8266 12, on a Pico W 3
SDA = 21  # of an SHT31 or BME280; on an ESP8266 4, on a Pico W 4
SCL = 22  # on an ESP8266 5, on a Pico W 5

# Empty: made from the chip's own number, such as esp32-a4cf1203b1c8. Never give two boards
# the same: to Coldaisle they are one sensor, whose readings jump.
NODE_ID = ""

# Seconds between readings. Heartbeats come every 1.5 of it. While the temperature rises
# by more than 0.5 °C a minute, readings come six times as often, at most every 2 s. A
# DHT22 measures no more often than every 2 s.
INTERVAL_S = 30

GATEWAY = "monitor-gateway.local"  # a name that ends in .local, or an IPv4 address
PORT = 8080
