// The alert records of the specification: one for each reading over a threshold. People are told
// of incidents; these are for programs and for looking back.
import { useQuery } from "@tanstack/preact-query";
import { useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { api, messageOf, unwrap } from "../api/client";
import { keys, pollSlowly, refresh, useSensorNames } from "../api/queries";
import { inWords } from "../logic/format";
import { Button } from "./acting";
import { May } from "./may";
import { Empty, Failure, Loading } from "./states";
import { Timestamp } from "./timestamp";

export function AlertRecords() {
  const { data, error, refetch } = useQuery({
    queryKey: [...keys.live, "alerts"], refetchInterval: pollSlowly,
    queryFn: () => unwrap(api.GET("/api/v1/alerts/history")),
  });
  const nameOf = useSensorNames();
  const [refused, setRefused] = useState<unknown>(null);
  const acknowledge = async (id: number) => {
    setRefused(null);
    await unwrap(api.POST("/api/v1/alerts/{alert_id}/acknowledge", { params: { path: { alert_id: id } } }))
      .catch(setRefused);
    await refresh(keys.live);
  };
  if (!data) return error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="alert records" />;
  if (data.length === 0) {
    return <Empty title="No alert record">
      <p>Each reading over a threshold makes one, beside the incident of its room.</p>
    </Empty>;
  }
  return (
    <>
      <p class="hint">
        The newest 50 alert records, one for each reading over a threshold. They are not incidents: taking an incident
        acknowledges its records.
      </p>
      {refused !== null && <p class="error" role="alert">{messageOf(refused)}</p>}
      <div class="card scroll" tabIndex={0} role="group" aria-label="Alert records">
        <table class="stacked">
          <thead>
            <tr><th scope="col">When</th><th scope="col">Sensor</th><th scope="col">Alert</th><th
              scope="col"
            >State</th></tr>
          </thead>
          <tbody>
            {data.map(({ id, sensor_id, message, timestamp, acknowledged }) => (
              <tr key={id}>
                <td><Timestamp at={timestamp} /></td>
                <th scope="row"><Link
                  href={`/sensors/${encodeURIComponent(sensor_id)}`} data-row
                >{nameOf(sensor_id)}</Link></th>
                <td class="wraps">{inWords(message)}</td>
                <td>
                  {acknowledged ? "Acknowledged" : <May role="operator">
                    <Button onClick={() => void acknowledge(id)}>
                      Acknowledge<span class="unseen"> alert record {id}</span>
                    </Button>
                  </May>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
