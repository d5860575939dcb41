// The last hour of an incident's worst value, with its limit and where it is expected to go.
import { useMemo } from "preact/hooks";
import { useHistory, useOverview } from "../api/queries";
import { endings, valueOf } from "../logic/excursions";
import type { Incident } from "../logic/incidents";
import { curveOf } from "../logic/curve";
import { askedOf, lengths } from "../logic/range";
import { columnsOf, gapOf, withNewest } from "../logic/series";
import { useNow } from "./clock";

const [width, height] = [240, 72];
const points = 60;

export default function Curve({ incident }: { incident: Incident }) {
  // No limit that is not in force.
  const worst = endings[incident.resolution ?? ""] ? { ...incident.worst, limit: null } : incident.worst;
  const quantity = worst.quantity === "humidity" ? "humidity" : worst.quantity === "temperature" ? "temperature" : null;
  const now = useNow(60_000);
  const [start, end] = askedOf(lengths["1h"], now);
  const history = useHistory(quantity === null ? undefined : worst.sensor_id, start, end, points);
  const sensor = useOverview().data?.sensors.find(({ id }) => id === worst.sensor_id);
  const newest = sensor?.timestamp ? Date.parse(sensor.timestamp) / 1000 : NaN;
  const value = quantity && sensor?.[quantity];
  const curve = useMemo(() => {
    if (quantity === null || !history.data) return null;
    const columns = columnsOf(history.data, quantity,
      gapOf(history.data, (end - start) / points / 1000, sensor?.interval_s));
    return curveOf({ ...incident, worst }, value == null || !newest ? columns : withNewest(columns, newest, value),
      now / 1000, width, height);
  }, [history.data, quantity, value, newest, incident, start, end]);
  if (!curve) return <div class="curve" />;
  const said =
    `The last `
      + `hour${worst.limit === null ? ""
        : `, limit ${valueOf(worst, worst.limit)}`}${curve.cone ? ", and where it is expected to go" : ""}`;
  return (
    <svg class={`curve ${incident.severity}`} viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none"
      role="img" aria-label={said}>
      {curve.cone && <path class="cone" d={curve.cone} />}
      {curve.limit !== null && <path class="limit" d={`M0 ${curve.limit.toFixed(1)}H${width}`}
        vector-effect="non-scaling-stroke" />}
      <path class="line" d={curve.line} vector-effect="non-scaling-stroke" />
    </svg>
  );
}
