import { useState } from "preact/hooks";
import { api, unwrap } from "../api/client";
import { keys, refresh } from "../api/queries";
import { Dialog } from "./dialog";
import { Field, Form } from "./form";

export default function AddRoom({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  return (
    <Dialog title="Add room" onClose={onClose}>
      <Form
        action="Add room" onCancel={onClose}
        onSubmit={async () => {
          await unwrap(api.POST("/api/v1/server_rooms/new_room", { body: { name } }));
          await refresh(keys.live);
          onClose();
        }}
      >
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={120} autoFocus />
      </Form>
    </Dialog>
  );
}
