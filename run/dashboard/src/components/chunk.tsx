// Parts of the page in files of their own, loaded when they are first shown.
import { useQuery } from "@tanstack/preact-query";
import type { ComponentType, FunctionComponent, VNode } from "preact";
import { messageOf, ApiError } from "../api/client";
import { session } from "../api/session";
import { Loading, Notice } from "./states";

type Load<P> = () => Promise<{ default: ComponentType<P> }>;

const loads: (() => Promise<unknown>)[] = [];

/** A component that is loaded when it is first shown, with something in its place
 * meanwhile, and a message if that fails. */
export function chunk<P extends object>(name: string, load: Load<P>,
  meanwhile: VNode = <Loading what={`the ${name}`} />): FunctionComponent<P> {
  const number = loads.push(load);
  return function Chunk(props: P) {
    const { data: Loaded, error, isFetching, refetch } = useQuery({
      queryKey: ["chunk", number], queryFn: () => load().then((module) => module.default, recover),
      staleTime: Infinity, gcTime: Infinity, retry: false,
      // A chunk that failed while offline is loaded again when there is a network.
      networkMode: "always", refetchOnReconnect: true,
    });
    if (Loaded) return <Loaded {...props} />;
    if (!error || isFetching) return meanwhile;
    const retry = () => {
      markReloaded(false);
      void refetch();
    };
    return <Notice text={`The ${name} could not be loaded. ${messageOf(error)}`} retry={retry} />;
  };
}

export const Charts = chunk("charts", () => import("./chart"));

/** Loads every chunk while the browser is idle. One that fails is loaded again when it is shown. */
export function preloadChunks(): void {
  const loadAll = async () => {
    for (const load of loads) await load().catch(() => undefined);
  };
  // Safari has no requestIdleCallback.
  if ("requestIdleCallback" in window) requestIdleCallback(() => void loadAll());
  else setTimeout(() => void loadAll(), 2000);
}

/**
 * After a release the chunks have new names, and the page must be reloaded to know
 * them. It reloads by itself, once. It does not while the API cannot be reached, nor
 * where a reload would sign the user out.
 */
async function recover(cause: unknown): Promise<never> {
  const answer = await fetch("/", { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(10_000) })
    .catch(() => null);
  if (!answer) throw cause;
  if (!answer.ok) throw new ApiError(answer.status, `The service answered ${answer.status}.`);
  const missing = "A file is missing, or was lost on the way.";
  if (!session.kept()) throw new ApiError(404, `${missing} If it stays so, reload this window and sign in again.`);
  if (reloaded()) throw new ApiError(404, missing);
  markReloaded(true);
  location.reload();
  return new Promise(() => undefined);
}

// The state of the history entry says that the page has been reloaded: it survives the
// reload, and browsers always allow it. It stays when a chunk was loaded, because
// another one may still be missing.
const reloaded = () => (history.state as { reloaded?: boolean } | null)?.reloaded === true;

function markReloaded(value: boolean): void {
  history.replaceState({ ...(history.state as object | null), reloaded: value }, "");
}
