// What the page of a room says of it at first sight.
import { limitsOf, type Overview, type RoomView } from "./overview";

/** The limit beside a room's highest temperature: its incident's, as it is told, or else the lowest of its sensors'. */
export function limitOf({ id, sensors }: RoomView, overview: Overview): number {
  const told = overview.incidents.find(({ room_id, worst, breaking, resolution }) => room_id === id
    && worst.quantity === "temperature" && worst.direction === "above" && (breaking || resolution === "cleared"));
  return told?.worst.limit ?? Math.min(...sensors.flatMap((sensor) => limitsOf(overview, sensor))
    .filter(({ quantity, direction }) => quantity === "temperature" && direction === "above")
    .map(({ limit }) => limit));
}
