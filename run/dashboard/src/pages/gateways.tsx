// The customer's gateways, with forms to create and revoke one.
import { useState } from "preact/hooks";
import { api, unwrap, type Gateway } from "../api/client";
import { keys, refresh, useGateways } from "../api/queries";
import { count } from "../logic/format";
import { Confirm } from "../components/dialog";
import { May } from "../components/may";
import { Empty, Failure, Loading, StatusMark } from "../components/states";
import { Timestamp } from "../components/timestamp";
import { AddGateway } from "../components/enrolment";
import { useTitle } from "../components/title";

export default function GatewaysPage() {
  useTitle("Gateways");
  const { data, error, refetch } = useGateways();
  const [creating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState<Gateway | null>(null);
  return (
    <>
      <div class="heading">
        <h1>Gateways</h1>
        <May role="admin">
          <button type="button" class="primary" onClick={() => setCreating(true)}>Add gateway</button>
        </May>
      </div>
      <p class="lead">Readings that come through an enrolled gateway are yours alone, whatever node ids others use.</p>
      {error && <Failure error={error} retry={() => void refetch()} />}
      {!data && !error && <Loading what="gateways" />}
      {data?.length === 0 && (
        <Empty title="No gateway enrolled yet">
          <May role="admin"><p>Add it here, then run the command that is shown on the gateway's machine.</p></May>
        </Empty>
      )}
      {data && data.length > 0 && (
        <div class="card scroll" tabIndex={0} role="group" aria-label="Gateways">
          <table>
            <thead>
              <tr>
                <th scope="col">Name</th><th scope="col">State</th><th scope="col">Last seen</th>
                <th scope="col">Nodes</th>
                <th scope="col">Clock offset</th><th scope="col">Version</th><th scope="col">Role</th>
                <th scope="col"><span class="unseen">Actions</span></th>
              </tr>
            </thead>
            <tbody>
              {data.map((gateway) => (
                <tr key={gateway.id}>
                  <th scope="row">{gateway.name}</th>
                  <td><State gateway={gateway} /></td>
                  <td>{gateway.last_seen ? <Timestamp at={gateway.last_seen} /> : "Never"}</td>
                  <td>{count(gateway.nodes)}</td>
                  <td>{gateway.last_seen ? `${count(gateway.clock_offset_ms)} ms` : "–"}</td>
                  <td>{gateway.version || "–"}</td>
                  <td>{gateway.role || "–"}</td>
                  <td>{!gateway.revoked && <May role="admin"><button type="button" onClick={() => setRevoking(gateway)}>
                    Revoke<span class="unseen"> {gateway.name}</span>
                  </button></May>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {creating && <AddGateway onClose={() => setCreating(false)} />}
      {revoking && <RevokeGateway gateway={revoking} onClose={() => setRevoking(null)} />}
    </>
  );
}

function State({ gateway }: { gateway: Gateway }) {
  if (gateway.revoked) return <span class="badge"><StatusMark kind="offline" />Revoked</span>;
  if (gateway.clone) return <span class="badge critical"><StatusMark kind="alert" />Key used by two machines</span>;
  if (!gateway.enrolled_at) return <span class="badge waiting"><StatusMark kind="waiting" />Waiting for its code</span>;
  return <span class="badge"><StatusMark kind="ok" />Enrolled</span>;
}

function RevokeGateway({ gateway, onClose }: { gateway: Gateway; onClose: () => void }) {
  const revoke = async () => {
    await unwrap(api.DELETE("/api/v1/gateways/{gateway_id}", { params: { path: { gateway_id: gateway.id } } }));
    await refresh(keys.gateways);
    onClose();
  };
  return (
    <Confirm title={`Revoke ${gateway.name}?`} action="Revoke gateway" onConfirm={revoke} onClose={onClose}>
      <p>Its readings are refused within 15 seconds. What it has delivered stays. To use it again, enrol it anew.</p>
    </Confirm>
  );
}
