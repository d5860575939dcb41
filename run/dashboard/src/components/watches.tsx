// The programs on site that call people: what is wrong with them, on every page of an operator.
import { useOverview } from "../api/queries";
import { StatusMark } from "./states";

export function WatchNotice() {
  const { data } = useOverview();
  return (
    <>
      {data?.watch_problems?.map((problem) => {
        // For how long is not read aloud again with each minute.
        const [, said = problem, lasting] = /^(.*)( for .*)$/.exec(problem) ?? [];
        return <div key={said} class="notice bad" role="alert">
          <p><StatusMark kind="alert" /> {said}<span aria-live="off">{lasting}</span></p>
        </div>;
      })}
    </>
  );
}
