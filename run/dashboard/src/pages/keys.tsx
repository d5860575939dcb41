// The customer's API keys, with forms to create and revoke one.
import { useQuery } from "@tanstack/preact-query";
import { useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { api, unwrap, type ApiKey } from "../api/client";
import { keys, refresh } from "../api/queries";
import { serviceTime } from "../api/time";
import { Confirm, Dialog } from "../components/dialog";
import { Field, Form, Select } from "../components/form";
import { May } from "../components/may";
import { RoomChoice, RoomNames } from "../components/scope";
import { Secret } from "../components/secret";
import { Empty, Failure, Loading } from "../components/states";
import { Timestamp } from "../components/timestamp";
import { useTitle } from "../components/title";

export default function KeysPage() {
  useTitle("API keys");
  const { data, error, refetch } = useQuery({
    queryKey: keys.apiKeys, queryFn: () => unwrap(api.GET("/api/v1/api-keys")),
  });
  const [creating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState<ApiKey | null>(null);
  return (
    <>
      <div class="heading">
        <h1>API keys</h1>
        <May role="admin">
          <button type="button" class="primary" onClick={() => setCreating(true)}>Create key</button>
        </May>
      </div>
      <p class="lead">
        Programs call by a key instead of your password. What they change is in
        the <Link href="/audit">audit log</Link>.
      </p>
      {error && <Failure error={error} retry={() => void refetch()} />}
      {!data && !error && <Loading what="keys" />}
      {data?.length === 0 && <Empty title="No API key yet">
        <p>Prometheus, Grafana or a script reads your rooms with it.</p>
      </Empty>}
      {data && data.length > 0 && (
        <div class="card scroll" tabIndex={0} role="group" aria-label="API keys">
          <table>
            <thead>
              <tr>
                <th scope="col">Name</th><th scope="col">Begins with</th><th scope="col">May</th>
                <th scope="col">Rooms</th>
                <th scope="col">Created</th><th scope="col">Expires</th><th scope="col">Last used</th>
                <th scope="col"><span class="unseen">Actions</span></th>
              </tr>
            </thead>
            <tbody>
              {data.map((key) => (
                <tr key={key.id}>
                  <th scope="row">{key.name}</th>
                  <td><code>{key.prefix}</code></td>
                  <td>{scopes[key.scope]}</td>
                  <td>{key.room_ids ? <RoomNames ids={key.room_ids} /> : "All"}</td>
                  <td><Timestamp at={key.created_at} /></td>
                  <td>{key.expires_at ? <Timestamp at={key.expires_at} /> : "Never"}</td>
                  <td>{key.last_used_at ? <Timestamp at={key.last_used_at} /> : "Never"}</td>
                  <td><May role="admin"><button type="button" onClick={() => setRevoking(key)}>
                    Revoke<span class="unseen"> {key.name}</span>
                  </button></May></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {creating && <CreateKey onClose={() => setCreating(false)} />}
      {revoking && <RevokeKey revoked={revoking} onClose={() => setRevoking(null)} />}
    </>
  );
}

const scopes = { read: "Read", write: "Read and change", watch: "Wake people: read and take incidents" } as const;

function CreateKey({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [scope, setScope] = useState<keyof typeof scopes>("read");
  const [days, setDays] = useState(0);
  const [some, setSome] = useState<number[]>([]);
  const [text, setText] = useState<string | null>(null);
  if (text !== null) {
    return <Secret title={`Key for ${name}`} text={text} onClose={onClose}>
      <p>Copy the key now. It is not shown again.</p>
    </Secret>;
  }
  return (
    <Dialog title="Create key" onClose={onClose}>
      <Form
        action="Create key" onCancel={onClose}
        onSubmit={async () => {
          const body = {
            name, scope,
            ...(some.length > 0 && { room_ids: some }),
            ...(days > 0 && { expires_at: new Date(serviceTime() + days * 86_400_000).toISOString() }),
          };
          setText((await unwrap(api.POST("/api/v1/api-keys", { body }))).key);
          await refresh(keys.apiKeys);
        }}
      >
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={80}
          hint="What it is for, for example “Prometheus”." autoFocus />
        <Select label="It may" value={scope} onChange={setScope}
          options={[["read", scopes.read], ["write", scopes.write], ["watch", scopes.watch]]} />
        <Select label="Expires" value={days} onChange={setDays}
          options={[[0, "Never"], [30, "In 30 days"], [90, "In 90 days"], [365, "In a year"]]} />
        <RoomChoice chosen={some} onChange={setSome}
          hint="The key sees only the rooms chosen here; with none chosen, all." />
      </Form>
    </Dialog>
  );
}

function RevokeKey({ revoked, onClose }: { revoked: ApiKey; onClose: () => void }) {
  const revoke = async () => {
    await unwrap(api.DELETE("/api/v1/api-keys/{key_id}", { params: { path: { key_id: revoked.id } } }));
    await refresh(keys.apiKeys);
    onClose();
  };
  return (
    <Confirm title={`Revoke ${revoked.name}?`} action="Revoke key" onConfirm={revoke} onClose={onClose}>
      <p>Programs that use it are refused at once.</p>
    </Confirm>
  );
}
