import { useState } from "preact/hooks";
import { messageOf } from "../api/client";

/** Runs a deletion, and keeps the error of the API. */
export function useDeletion(work: () => Promise<void>) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const run = () => {
    setBusy(true);
    work().catch(setError).finally(() => setBusy(false));
  };
  return { busy, run, errorText: error === null ? null : <p class="error" role="alert">{messageOf(error)}</p> };
}
