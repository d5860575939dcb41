// The programs on site that call people, and whether they would.
import { useQuery } from "@tanstack/preact-query";
import { useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { api, unwrap, type Watch } from "../api/client";
import { keys, pollSlowly, refresh } from "../api/queries";
import { Confirm } from "../components/dialog";
import { May } from "../components/may";
import { Empty, Failure, Loading, StatusMark } from "../components/states";
import { Timestamp } from "../components/timestamp";
import { useTitle } from "../components/title";

export default function WatchesPage() {
  useTitle("Watches");
  const { data, error, refetch } = useQuery({
    queryKey: keys.watches, refetchInterval: pollSlowly, queryFn: () => unwrap(api.GET("/api/v1/watches")),
  });
  const [removing, setRemoving] = useState<Watch | null>(null);
  return (
    <>
      <h1>Watches</h1>
      <p class="lead">
        Coldaisle sends no mail. A watch does: your program on site, which follows the incidents and wakes people by its
        steps.
      </p>
      {error && <Failure error={error} retry={() => void refetch()} />}
      {!data && !error && <Loading what="watches" />}
      {data?.length === 0 && (
        <Empty title="Nobody is woken yet">
          <p>Make an <Link href="/keys">API key</Link> that
            may <em>wake people</em>. On a machine with the gateway’s package, run:</p>
          <p><code>sudo monitor-gateway watch init --api {location.origin} --name "My site"</code></p>
          <p>It asks for the key, and how to reach you. The watch appears here when it has started.</p>
        </Empty>
      )}
      {data && data.length > 0 && (
        <div class="card scroll" tabIndex={0} role="group" aria-label="Watches">
          <table>
            <thead>
              <tr>
                <th scope="col">Name</th><th scope="col">State</th><th scope="col">Last heartbeat</th>
                <th scope="col">Last message</th>
                <th scope="col"><span class="unseen">Actions</span></th>
              </tr>
            </thead>
            <tbody>
              {data.map((watch) => (
                <tr key={watch.id}>
                  <th scope="row">{watch.name}</th>
                  <td><StatusMark kind={watch.problem ? "alert" : "ok"} /> {watch.problem ?? "Well"}</td>
                  <td><Timestamp at={watch.heartbeat_at} /></td>
                  <td>{watch.succeeded_at ? <Timestamp at={watch.succeeded_at} /> : "None yet"}</td>
                  <td><May role="admin"><button type="button" onClick={() => setRemoving(watch)}>
                    Remove<span class="unseen"> {watch.name}</span>
                  </button></May></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {removing && <RemoveWatch watch={removing} onClose={() => setRemoving(null)} />}
    </>
  );
}

function RemoveWatch({ watch, onClose }: { watch: Watch; onClose: () => void }) {
  const remove = async () => {
    await unwrap(api.DELETE("/api/v1/watches/{watch_id}", { params: { path: { watch_id: watch.id } } }));
    await refresh(keys.watches);
    onClose();
  };
  return (
    <Confirm title={`Remove ${watch.name}?`} action="Remove watch" onConfirm={remove} onClose={onClose}>
      <p>Its silence is no longer reported. If it still runs, it is back within a minute.</p>
    </Confirm>
  );
}
