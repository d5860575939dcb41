import { useRef, useState } from "preact/hooks";

/** The next page of a list that comes page by page, where there is one. At its end the button stays while it has the
 * focus: the keys go on from there. */
export function More({ hasNextPage, isFetchingNextPage, fetchNextPage }: {
  hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown;
}) {
  const button = useRef<HTMLButtonElement>(null);
  const [, settle] = useState(0);
  // Of a window in the background nothing matches :focus.
  if (!hasNextPage && document.activeElement !== button.current) return null;
  return <button ref={button} type="button" aria-disabled={isFetchingNextPage || !hasNextPage}
    onBlur={() => settle((n) => n + 1)} onClick={() => hasNextPage && !isFetchingNextPage && void fetchNextPage()}>
    {isFetchingNextPage ? "One moment…" : hasNextPage ? "Show more" : "That is all"}
  </button>;
}
