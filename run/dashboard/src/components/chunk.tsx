// Parts of the page in files of their own, loaded when they are first shown.
import { useQuery } from "@tanstack/react-query";
import type { ComponentType, FunctionComponent } from "preact";
import { messageOf, ApiError } from "../api/client";
import { session } from "../api/session";
import { Loading, Notice } from "./states";

type Load<P> = () => Promise<{ default: ComponentType<P> }>;

const loads: (() => Promise<unknown>)[] = [];

/** A component that is loaded when it is first shown, and says so when it cannot be. */
export function chunk<P extends object>(name: string, load: Load<P>): FunctionComponent<P> {
  const number = loads.push(load);
  return function Chunk(props: P) {
    const { data: Loaded, error, isFetching, refetch } = useQuery({
      queryKey: ["chunk", number], queryFn: () => load().then((module) => module.default, recover),
      staleTime: Infinity, gcTime: Infinity, retry: false,
      // What is loaded already needs no network; what is not is tried again when there is one.
      networkMode: "always", refetchOnReconnect: true,
    });
    if (Loaded) return <Loaded {...props} />;
    if (!error || isFetching) return <Loading what={`the ${name}`} />;
    const retry = () => {
      markReloaded(false);
      void refetch();
    };
    return <Notice text={`The ${name} could not be loaded. ${messageOf(error)}`} retry={retry} />;
  };
}

export const Charts = chunk("charts", () => import("./chart"));

/** Loads every chunk while the browser has nothing else to do. One that fails is loaded again when it is shown. */
export function preloadChunks(): void {
  const loadAll = async () => {
    for (const load of loads) await load().catch(() => undefined);
  };
  // Safari has no idle callback.
  if ("requestIdleCallback" in window) requestIdleCallback(() => void loadAll());
  else setTimeout(() => void loadAll(), 2000);
}

/**
 * After a release the chunks have other names, which only a reload learns. The page
 * reloads by itself once, and not while the service is away or when that would
 * sign the user out.
 */
async function recover(cause: unknown): Promise<never> {
  const answer = await fetch("/", { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(10_000) }).catch(() => null);
  if (!answer) throw cause;
  if (!answer.ok) throw new ApiError(answer.status, `The service answered ${answer.status}.`);
  const missing = "A file is missing, or was lost on the way.";
  if (!session.kept()) throw new ApiError(404, `${missing} If it stays so, reload this window and sign in again.`);
  if (reloaded()) throw new ApiError(404, missing);
  markReloaded(true);
  location.reload();
  return new Promise(() => undefined);
}

// The entry in the tab's history remembers the reload: it outlives it, and no
// setting forbids it. It is not forgotten when a chunk has come, because another
// one of the same page may be missing still.
const reloaded = () => (history.state as { reloaded?: boolean } | null)?.reloaded === true;

function markReloaded(value: boolean): void {
  history.replaceState({ ...(history.state as object | null), reloaded: value }, "");
}
