import { useQueryClient } from "@tanstack/preact-query";
import { useState } from "preact/hooks";
import { api, unwrap, type Person } from "../api/client";
import { keys, refresh, usePersons, useProfile } from "../api/queries";
import { expire, session } from "../api/session";
import { signIn } from "../api/signin";
import { passwordError, usernameError } from "../logic/validation";
import { Field, Form } from "../components/form";
import { Failure, Loading } from "../components/states";
import { useTitle } from "../components/title";

interface Profile { id: number; email: string; username: string }

export default function AccountPage() {
  useTitle("Account");
  const [profile, persons] = [useProfile(), usePersons()];
  const me = persons.data?.find(({ self }) => self);
  const failed = [profile, persons].find(({ error }) => error);
  if (!profile.data || !me) {
    return failed ? <Failure error={failed.error} retry={() => void failed.refetch()} />
      : <Loading what="your account" />;
  }
  return (
    <>
      <h1>Account</h1>
      <div class="pair">
        <ProfileForm profile={profile.data} me={me} />
        <PasswordForm profile={profile.data} />
      </div>
    </>
  );
}

function ProfileForm({ profile, me }: { profile: Profile; me: Person }) {
  const queries = useQueryClient();
  // What was changed here: all else may have been since, by another tab.
  const [changed, setChanged] = useState<{ email?: string; username?: string; name?: string }>({});
  const change = (typed: typeof changed) => setChanged((before) => ({ ...before, ...typed }));
  const { email, username, name } = { ...profile, name: me.name, ...changed };
  const owner = me.role === "owner";
  const [done, setDone] = useState(false);
  return (
    <section class="card" aria-labelledby="profile">
      <h2 id="profile">Profile</h2>
      <Form
        action="Save profile"
        onSubmit={async () => {
          setDone(false);
          if (owner && usernameError(username)) return;
          const path = { customer_id: profile.id };
          const saved = await unwrap(api.PATCH("/api/v1/customers/{customer_id}", { params: { path }, body: changed }));
          queries.setQueryData(keys.profile, saved);
          session.move(saved.email);
          await refresh(keys.persons);
          // More may have been typed meanwhile.
          setChanged((now) => Object.fromEntries(Object.entries(now)
            .filter(([field, value]) => value !== changed[field as keyof typeof changed])));
          setDone(true);
        }}
      >
        <Field label="E-mail" name="email" type="email" value={email} onInput={(typed) => change({ email: typed })}
          autoComplete="username" maxLength={120} />
        <Field label="Your name" name="name" value={name} onInput={(typed) => change({ name: typed })}
          maxLength={80} autoComplete="name" hint="What everybody sees." />
        <Field
          label="Username" name="username" value={username} onInput={(typed) => change({ username: typed })}
          autoComplete="nickname" readOnly={!owner}
          hint={owner ? "Of the account: 6 to 12 characters." : "Of the account: an owner changes it."}
          error={owner ? usernameError(username) : null}
        />
        {done && <p role="status" class="good-text">Saved.</p>}
      </Form>
    </section>
  );
}

function PasswordForm({ profile }: { profile: Profile }) {
  const [password, setPassword] = useState("");
  const [done, setDone] = useState(false);
  const error = password === "" ? null : passwordError(password);
  return (
    <section class="card" aria-labelledby="password">
      <h2 id="password">Password</h2>
      <Form
        action="Change password"
        onSubmit={async () => {
          setDone(false);
          if (passwordError(password)) return;
          await unwrap(
            api.PATCH("/api/v1/customers/{customer_id}", {
              params: { path: { customer_id: profile.id } }, body: { password },
            }),
          );
          // The change has made every older token invalid. If signing in fails, the page asks for it.
          await signIn(profile.email, password).catch(expire);
          setPassword("");
          setDone(true);
        }}
      >
        <Field
          label="New password" name="password" type="password" value={password} onInput={setPassword}
          autoComplete="new-password" error={error}
          hint={"At least 8 characters with an uppercase letter, a lowercase letter and a digit. "
            + "Other devices must sign in again."}
        />
        {done && <p role="status" class="good-text">Changed.</p>}
      </Form>
    </section>
  );
}
