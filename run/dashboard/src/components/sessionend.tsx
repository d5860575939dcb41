// Says that the session is about to end.
import { useState } from "preact/hooks";
import { session } from "../api/session";
import { chunk } from "./chunk";
import { useNow } from "./clock";
import { useStore } from "./store";

const SignInAgain = chunk("form", () => import("./signinagain"));

/** How long before its end a session can be renewed: milliseconds. */
const noticed = 180_000;

/**
 * Says that the session is about to end, and asks for the password over the page: before
 * the end when the user wants it, at the end in any case. The page stays as it is, and
 * so does what is typed here when the session ends meanwhile.
 */
export function SessionEnd() {
  useNow(10_000);
  const expired = useStore({ subscribe: session.subscribe, get: session.expired });
  const [renewing, setRenewing] = useState(false);
  const current = session.get();
  if (!current) return null;
  if (expired || renewing) return <SignInAgain ended={expired} who={current} onClose={() => setRenewing(false)} />;
  const left = session.left();
  if (left > noticed) return null;
  return (
    <div class="session-end" role="status">
      <span>Your session ends in {Math.max(1, Math.ceil(left / 60_000))} min.</span>
      <button type="button" onClick={() => setRenewing(true)}>Stay signed in</button>
    </div>
  );
}
