// A screen on the wall: every room at once, those in trouble on most of it, with the screen kept
// awake. An account shows it, or an API key that reads alone.
import { useEffect, useMemo, useState } from "preact/hooks";
import { useLocation } from "wouter-preact";
import { useOverview } from "../api/queries";
import { session } from "../api/session";
import { timeOfDay } from "../logic/format";
import { inTrouble, roomsOf, type Overview, type RoomView } from "../logic/overview";
import { useNow } from "../components/clock";
import { ContactNotice, useLostContact } from "../components/contact";
import { densityOf, RoomMap, Scale } from "../components/heatmap";
import { Empty, Failure, Loading } from "../components/states";
import { useTitle } from "../components/title";
import { Sentence } from "./now";

export default function WallPage() {
  useTitle("Wall");
  const { data, error, refetch } = useOverview();
  const lost = useLostContact();
  const key = session.get()?.key;
  const rooms = useMemo(() => (data ? roomsOf(data).filter(({ sensors }) => sensors.length > 0) : []), [data]);
  const worse = rooms.filter(inTrouble);
  const fine = rooms.filter((room) => !inTrouble(room));
  return (
    <div class="wall">
      <h1 class="unseen">Wall</h1>
      <ContactNotice />
      {session.expired() && key && (
        <p class="notice bad" role="alert">
          The API key has ended: what you see is old. Leave the wall, and begin again with another key.
        </p>
      )}
      {!data && (error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="your rooms" />)}
      {data && data.sensors.length > 0 && <Sentence overview={data} lost={lost} wall />}
      {data && rooms.length === 0 && <Empty title="No room has a sensor yet">
        <p>Rooms are shown here as soon as they do.</p>
      </Empty>}
      {data && rooms.length > 0 && (
        <div class={`walled${lost === null ? "" : " stale"}${worse.length > 0 && fine.length > 0 ? " divided" : ""}`}>
          {worse.length > 0 && <Walled rooms={worse} overview={data} />}
          {fine.length > 0 && <Walled rooms={fine} overview={data} />}
        </div>
      )}
      <Foot />
    </div>
  );
}

/** Rooms side by side, as large as their part of the screen lets them be. */
function Walled({ rooms, overview }: { rooms: readonly RoomView[]; overview: Overview }) {
  const sensors = rooms.reduce((sum, room) => sum + room.sensors.length, 0);
  const density = densityOf(sensors);
  return (
    <div class={`rooms ${density}`} style={{ "--rooms": `${Math.ceil(Math.sqrt(rooms.length))}` }}>
      {rooms.map((room) => <RoomMap key={room.id} room={room} overview={overview} density={density} />)}
    </div>
  );
}

function Foot() {
  const [, go] = useLocation();
  const awake = useWakeLock();
  const now = useNow();
  const full = () =>
    void (document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen());
  const leave = () => {
    if (document.fullscreenElement) void document.exitFullscreen();
    if (session.get()?.key) session.end();
    go("/");
  };
  return (
    <footer>
      <Scale />
      <p class="hint">{timeOfDay(now)}{!awake && " · this browser lets the screen sleep"}</p>
      <p class="actions">
        {document.fullscreenEnabled && <button type="button" onClick={full}>Full screen</button>}
        <button type="button" onClick={leave}>Leave</button>
      </p>
    </footer>
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
