// The programs on site that call people: what is wrong with them, on every page of an operator.
import { useOverview } from "../api/queries";
import { StatusMark } from "./states";

export function WatchNotice() {
  const { data } = useOverview();
  return (
    <>
      {data?.watch_problems?.map((problem) => (
        <div key={problem} class="notice bad" role="alert"><p><StatusMark kind="alert" /> {problem}</p></div>
      ))}
    </>
  );
}
