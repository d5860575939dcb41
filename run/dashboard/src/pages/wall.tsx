// The overview for a screen on the wall: one room after the other, large, with the
// screen kept awake. An account shows it, or an API key that reads alone.
import { useEffect, useMemo, useState } from "preact/hooks";
import { useLocation } from "wouter-preact";
import { useOverview } from "../api/queries";
import { session } from "../api/session";
import { timeOfDay } from "../logic/format";
import { roomsOf, rotation } from "../logic/overview";
import { useNow } from "../components/clock";
import { ContactNotice, useLostContact } from "../components/contact";
import { densityOf, Legend, RoomMap } from "../components/heatmap";
import { Empty, Failure, Loading } from "../components/states";
import { useTitle } from "../components/title";
import { Sentence } from "./overview";

/** How long a room is shown: milliseconds. */
const shownFor = 20_000;

export default function WallPage() {
  useTitle("Wall");
  const { data, error, refetch } = useOverview();
  const lost = useLostContact();
  const [turn, setTurn] = useState(0);
  const [, go] = useLocation();
  const awake = useWakeLock();
  const now = useNow();
  const key = session.get()?.key;
  const rooms = useMemo(() => (data ? rotation(roomsOf(data)) : []), [data]);
  useEffect(() => {
    const timer = setInterval(() => setTurn((before) => before + 1), shownFor);
    return () => clearInterval(timer);
  }, []);
  const room = rooms[turn % Math.max(1, rooms.length)];
  const density = room && densityOf(room.sensors.length);
  return (
    <div class="wall">
      <h1 class="unseen">Wall</h1>
      <ContactNotice />
      {session.expired() && key && <p class="notice bad" role="alert">The API key has ended: what you see is old. Leave the wall, and begin it with another key.</p>}
      {!data && (error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="your rooms" />)}
      {data && lost === null && data.sensors.length > 0 && <Sentence overview={data} />}
      {data && rooms.length === 0 && <Empty title="No room has a sensor yet"><p>Rooms are shown here as soon as they do.</p></Empty>}
      {data && room && density && (
        <div class={`rooms ${density}${lost === null ? "" : " stale"}`}>
          <RoomMap key={room.id} room={room} overview={data} density={density} />
        </div>
      )}
      <footer>
        <Legend />
        <p class="hint">{rooms.length > 1 && `${(turn % rooms.length) + 1} of ${rooms.length} · `}{timeOfDay(now)}{!awake && " · this browser lets the screen sleep"}</p>
        <p class="actions">
          {document.fullscreenEnabled && <button type="button" onClick={() => void (document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen())}>Full screen</button>}
          <button type="button" onClick={() => {
            if (document.fullscreenElement) void document.exitFullscreen();
            if (key) session.end();
            go("/");
          }}>Leave</button>
        </p>
      </footer>
    </div>
  );
}

/** Keeps the screen awake while the page is seen. Whether it does. */
function useWakeLock(): boolean {
  const [awake, setAwake] = useState(true);
  useEffect(() => {
    let lock: WakeLockSentinel | undefined;
    let left = false;
    const hold = async () => {
      if (document.hidden) return;
      try {
        lock = await navigator.wakeLock.request("screen");
        if (left) await lock.release();
        setAwake(true);
      } catch {
        setAwake(false);
      }
    };
    // The browser lets it go whenever the page is hidden.
    document.addEventListener("visibilitychange", hold);
    void hold();
    return () => {
      left = true;
      document.removeEventListener("visibilitychange", hold);
      void lock?.release();
    };
  }, []);
  return awake;
}
