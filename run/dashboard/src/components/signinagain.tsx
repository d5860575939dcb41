// Signing in again over the page.
import { useQueryClient } from "@tanstack/preact-query";
import { useEffect } from "preact/hooks";
import { session, type Session } from "../api/session";
import { Dialog } from "./dialog";
import { SignInForm } from "./signin";

export default function SignInAgain({ ended, who, onClose }: { ended: boolean; who: Session; onClose: () => void }) {
  const queries = useQueryClient();
  // Also when the session was renewed in another tab.
  useEffect(() => () => {
    if (ended) void queries.invalidateQueries();
  }, [ended]);
  return (
    <Dialog title={ended ? "Your session has ended" : "Stay signed in"} onClose={ended ? undefined : onClose}>
      <p>{ended ? "Sign in again to continue where you were." : "Enter your password. The page stays as it is."}</p>
      <SignInForm
        email={who.email}
        onDone={onClose}
      />
      {ended && <button type="button" class="link" onClick={() => session.end()}>Sign out instead</button>}
    </Dialog>
  );
}
