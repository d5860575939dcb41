import { useEffect, useState } from "preact/hooks";
import { useOverview } from "../api/queries";

/** The time, updated at an interval in milliseconds while the tab is visible. */
export function useNow(every = 5000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const tick = () => {
      if (!document.hidden) setNow(Date.now());
    };
    const timer = setInterval(tick, every);
    document.addEventListener("visibilitychange", tick);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", tick);
    };
  }, [every]);
  return now;
}

/** The time by the service's clock, by which ages of readings are told: this computer's may be wrong. */
export function useServiceTime(): number {
  const ahead = useOverview().data?.ahead ?? 0;
  return useNow() + ahead;
}
