import { useState } from "preact/hooks";
import { messageOf } from "../api/client";

/** Runs a deletion once, and holds what the service said against it. */
export function useDeletion(work: () => Promise<void>) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const run = () => {
    setBusy(true);
    work().catch(setError).finally(() => setBusy(false));
  };
  return { busy, run, fault: error === null ? null : <p class="fault" role="alert">{messageOf(error)}</p> };
}
