class OneWire:
    def __init__(self, pin):
        pass
