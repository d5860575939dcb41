import { useQueryClient } from "@tanstack/preact-query";
import { useState } from "preact/hooks";
import { api, unwrap } from "../api/client";
import { keys } from "../api/queries";
import { Dialog } from "./dialog";
import { Field, Form } from "./form";

export default function AddRoom({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const queries = useQueryClient();
  return (
    <Dialog title="Add room" onClose={onClose}>
      <Form
        action="Add room" onCancel={onClose}
        onSubmit={async () => {
          await unwrap(api.POST("/api/v1/server_rooms/new_room", { body: { name } }));
          await queries.invalidateQueries({ queryKey: keys.live });
          onClose();
        }}
      >
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={120} autoFocus />
      </Form>
    </Dialog>
  );
}
