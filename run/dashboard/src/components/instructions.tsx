// What to do when a room is in trouble, as its admins have written it.
import { useId, useState } from "preact/hooks";
import { api, unwrap } from "../api/client";
import { keys, refresh, useRooms } from "../api/queries";
import { Dialog } from "./dialog";
import { Form } from "./form";
import { May } from "./may";
import { Failure } from "./states";

export function Instructions({ roomID }: { roomID: number }) {
  const { data, error, refetch } = useRooms();
  const [editing, setEditing] = useState(false);
  const room = data?.find(({ id }) => id === roomID);
  if (!data && error) return <Failure error={error} retry={() => void refetch()} />;
  if (!room) return null;
  return (
    <section class="card" aria-labelledby="instructions">
      <div class="heading">
        <h2 id="instructions">What to do</h2>
        <May role="admin">
          <button type="button" class="quiet" onClick={() => setEditing(true)}>
            {room.instructions ? "Change" : "Write it"}
          </button>
        </May>
      </div>
      {room.instructions
        ? <p class="written">{room.instructions}</p>
        : <p class="hint">Nobody has written whom to call for this room, or where its switches are.</p>}
      {editing && <Edit room={room} onClose={() => setEditing(false)} />}
    </section>
  );
}

function Edit({ room, onClose }: {
  room: { id: number; name: string; instructions: string | null }; onClose: () => void;
}) {
  const [text, setText] = useState(room.instructions ?? "");
  const id = useId();
  return (
    <Dialog title={`What to do: ${room.name}`} onClose={onClose} wide>
      <Form
        action="Save" onCancel={onClose}
        onSubmit={async () => {
          const body = { name: room.name, instructions: text.trim() };
          await unwrap(
            api.PUT("/api/v1/server_rooms/update_room/{room_id}", { params: { path: { room_id: room.id } }, body }),
          );
          await refresh(keys.rooms);
          onClose();
        }}
      >
        <div class="field">
          <label for={id}>For whoever is there at night</label>
          <textarea
            id={id} rows={6} maxLength={2000} value={text} autoFocus
            onInput={(event) => setText(event.currentTarget.value)}
            placeholder="Whom to call, and where the switch is"
          />
        </div>
      </Form>
    </Dialog>
  );
}
