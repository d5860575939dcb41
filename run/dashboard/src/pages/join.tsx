// The page of an invitation's link: its code is behind #, which no browser sends.
import { useEffect, useState } from "preact/hooks";
import { useLocation } from "wouter-preact";
import { useLocationProperty } from "wouter-preact/use-browser-location";
import { ApiError, messageOf } from "../api/client";
import { acceptInvitation, type Accepted } from "../api/signin";
import { Field, Form } from "../components/form";
import { Failure, Loading } from "../components/states";
import { useTitle } from "../components/title";
import { roles } from "../logic/roles";
import { passwordError } from "../logic/validation";

/** Whether the service knows no such invitation. Whoever cannot be reached says nothing of it. */
const refuses = (error: unknown) => error instanceof ApiError && (error.status === 404 || error.status === 400);

export default function JoinPage() {
  useTitle("Invitation");
  // Another one in the same tab loads no page.
  const code = useLocationProperty(() => location.hash.slice(1));
  const [invitation, setInvitation] = useState<Accepted | null>(null);
  const [error, setError] = useState<unknown>(null);
  const open = () => {
    let left = false;
    setInvitation(null);
    setError(null);
    acceptInvitation({ code }).then((found) => left || setInvitation(found), (refused) => left || setError(refused));
    return () => { left = true; };
  };
  useEffect(open, [code]);
  return (
    <main id="main" class="gate">
      <h1><img src="/icon.svg" alt="" width="40" height="40" /> Coldaisle</h1>
      <section class="card">
        <h2>Invitation</h2>
        {error !== null && (refuses(error)
          ? <><p class="error" role="alert">{messageOf(error)}</p><p>Ask for a new one.</p></>
          : <Failure error={error} retry={open} />)}
        {!invitation && error === null && <Loading what="the invitation" />}
        {invitation && <JoinForm code={code} invitation={invitation} />}
      </section>
    </main>
  );
}

function JoinForm({ code, invitation }: { code: string; invitation: Accepted }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [tried, setTried] = useState(false);
  const [, go] = useLocation();
  return (
    <>
      <p>{invitation.invited_by} invites you into the account {invitation.username}.</p>
      <p class="hint">{roles.find(([role]) => role === invitation.role)?.[1]}</p>
      <Form
        action="Join"
        onSubmit={async () => {
          setTried(true);
          if (passwordError(password)) return;
          await acceptInvitation({ code, name, password });
          go("/", { replace: true });
        }}
      >
        <Field
          label="E-mail" name="email" type="email" value={invitation.email} onInput={() => undefined}
          autoComplete="username" readOnly
        />
        <Field
          label="Your name" name="name" value={name} onInput={setName} maxLength={80} autoComplete="name"
          hint="What everybody sees." autoFocus
        />
        <Field
          label="Password" name="password" type="password" value={password} onInput={setPassword}
          autoComplete="new-password" error={tried ? passwordError(password) : null}
          hint="At least 8 characters with an uppercase letter, a lowercase letter and a digit."
        />
      </Form>
    </>
  );
}
