// Whether what the page shows is so now: when there is no contact with the service,
// the last values stay, dimmed, and say since when.
import { useEffect, useMemo, useState } from "preact/hooks";
import { useOverview } from "../api/queries";
import { serviceTime } from "../api/time";
import { timeNear } from "../logic/format";
import { messageOf } from "../api/client";
import { StatusMark } from "./states";
import { WatchNotice } from "./watches";

/** Two answers that did not come, and a little. */
const patience = 40_000;

/** Since when there is no contact with the service, by its clock, or null: milliseconds. */
export function useLostContact(): number | null {
  const { isError, data, dataUpdatedAt } = useOverview();
  const [old, setOld] = useState(false);
  useEffect(() => {
    const begun = performance.now();
    // By the clock too, for no timer runs while the computer sleeps. What shows thousands of cells is rendered
    // when this changes, not each time.
    const look = () => setOld(dataUpdatedAt > 0
      && Math.max(Date.now() - dataUpdatedAt, performance.now() - begun) > patience);
    look();
    const timer = setInterval(look, 1000);
    document.addEventListener("visibilitychange", look);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", look);
    };
  }, [dataUpdatedAt]);
  // Once: what is known of the service's clock changes with its answers, by a second.
  const answered = useMemo(() => serviceTime(dataUpdatedAt), [dataUpdatedAt]);
  return data !== undefined && (isError || old) ? answered : null;
}

/** Since when, and not for how long: an alert that changes is read aloud again. */
export function ContactNotice() {
  const { error, refetch, isFetching } = useOverview();
  const lost = useLostContact();
  if (lost === null) return <WatchNotice />;
  return (
    <div class="notice" role="alert">
      <p><StatusMark kind="offline" /> No contact since {timeNear(lost, serviceTime())}. What you see was so
        then. {error !== null && messageOf(error)}</p>
      <button type="button" aria-disabled={isFetching} onClick={() => void (isFetching || refetch())}>
        {isFetching ? "Trying…" : "Try now"}
      </button>
    </div>
  );
}
