// The rooms as a table, in the service's order.
import { useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { useOverview } from "../api/queries";
import { changeOf, plural, withUnit } from "../logic/format";
import { roomsOf } from "../logic/overview";
import AddRoom from "../components/addroom";
import { StateBadge } from "../components/badge";
import { ContactNotice, useLostContact } from "../components/contact";
import { May } from "../components/may";
import { Empty, Failure, Loading } from "../components/states";
import { useTitle } from "../components/title";

export default function RoomsPage() {
  useTitle("Rooms");
  const { data, error, refetch } = useOverview();
  const lost = useLostContact();
  const [adding, setAdding] = useState(false);
  return (
    <>
      <div class="heading">
        <h1>Rooms</h1>
        <May role="admin"><button type="button" class="primary" onClick={() => setAdding(true)}>Add room</button></May>
      </div>
      <ContactNotice />
      {!data && (error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="your rooms" />)}
      {data?.rooms.length === 0 && <Empty title="No room yet">
        <p>A room holds the sensors that measure in it.</p>
      </Empty>}
      {data && data.rooms.length > 0 && (
        <div class={`card scroll${lost === null ? "" : " stale"}`} tabIndex={0} role="group" aria-label="Rooms">
          <table class="stacked">
            <thead>
              <tr>
                <th scope="col">Room</th><th scope="col">State</th><th scope="col">Highest</th>
                <th scope="col">In 15 min</th><th scope="col">Sensors</th>
              </tr>
            </thead>
            <tbody>
              {roomsOf(data).map(({ id, name, state, highest, change, sensors }) => (
                <tr key={id}>
                  <th scope="row"><Link href={`/rooms/${id}`}>{name}</Link></th>
                  <td>{sensors.length > 0 && <StateBadge state={state} />}</td>
                  <td data-name="Highest">{withUnit(highest)}</td>
                  <td data-name="In 15 min">{changeOf(change) ?? "–"}</td>
                  <td>{plural(sensors.length, "sensor")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {adding && <AddRoom onClose={() => setAdding(false)} />}
    </>
  );
}
