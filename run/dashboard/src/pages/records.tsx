// Signed monthly records of rooms, for auditors.
import { useState } from "preact/hooks";
import { api, messageOf, unwrap } from "../api/client";
import { save } from "../api/download";
import { useRooms } from "../api/queries";
import { Action } from "../components/action";
import { useNow } from "../components/clock";
import { Select } from "../components/form";
import { Empty, Failure, Loading } from "../components/states";
import { useTitle } from "../components/title";
import { months } from "../logic/report";

export default function RecordsPage() {
  useTitle("Records");
  const rooms = useRooms();
  const choice = months(useNow(60_000), 24, "UTC");
  const [roomID, setRoomID] = useState(0);
  const [month, setMonth] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  if (!rooms.data) {
    return rooms.error ? <Failure error={rooms.error} retry={() => void rooms.refetch()} /> : <Loading what="rooms" />;
  }
  const room = rooms.data.find(({ id }) => id === roomID) ?? rooms.data[0];
  const chosen = month || choice[1] || "";
  if (!room) return <><h1>Records</h1><Empty title="No room yet"><p>A record is of a room.</p></Empty></>;
  const download = async () => {
    setBusy(true);
    setError(null);
    try {
      const path = { room_id: room.id, month: chosen };
      save((await unwrap(
        api.GET("/api/v1/records/{room_id}/{month}", { params: { path }, parseAs: "blob" }),
      )) as unknown as Blob,
        `record-${room.id}-${chosen}.zip`);
    } catch (refused) {
      setError(refused);
    }
    setBusy(false);
  };
  return (
    <>
      <h1>Records</h1>
      <p class="lead">
        The signed record of a room's month: readings, incidents, drills, calibrations, rules and changes. Whoever gets
        it can verify it without this service, by the page docs/records.md of Coldaisle.
      </p>
      <div class="card">
        <Select label="Room" value={room.id} onChange={setRoomID}
          options={rooms.data.map(({ id, name }) => [id, name] as const)} />
        <Select label="Month (UTC)" value={chosen} onChange={setMonth}
          options={choice.map((name, i) => [name, i === 0 ? `${name}, not over` : name] as const)} />
        <p class="actions"><Action waits={busy && "It is being made…"} onClick={download}>Download</Action></p>
        {error !== null && <p class="error" role="alert">{messageOf(error)}</p>}
      </div>
    </>
  );
}
