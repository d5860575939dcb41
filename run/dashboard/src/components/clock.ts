import { useEffect, useState } from "preact/hooks";
import { onServiceTime, serviceTime } from "../api/time";

/** The service's time, updated at an interval in milliseconds while the tab is visible. */
export function useNow(every = 5000): number {
  const [now, setNow] = useState(() => serviceTime());
  useEffect(() => {
    const tick = () => {
      if (!document.hidden) setNow(serviceTime());
    };
    tick();
    const timer = setInterval(tick, every);
    const forget = onServiceTime(tick);
    document.addEventListener("visibilitychange", tick);
    return () => {
      clearInterval(timer);
      forget();
      document.removeEventListener("visibilitychange", tick);
    };
  }, [every]);
  return now;
}
