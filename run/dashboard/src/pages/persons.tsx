// Who signs in for the account, and as what; invitations.
import { useQuery } from "@tanstack/preact-query";
import { useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { api, unwrap, type Invitation, type Person } from "../api/client";
import { keys, refresh, usePersons } from "../api/queries";
import { Confirm, Dialog } from "../components/dialog";
import { Field, Form, Select } from "../components/form";
import { Secret } from "../components/secret";
import { Failure, Loading } from "../components/states";
import { Timestamp } from "../components/timestamp";
import { useTitle } from "../components/title";
import { atLeast, roles, rolesUpTo, type Role } from "../logic/roles";

export default function PersonsPage() {
  useTitle("People");
  const { data, error, refetch } = usePersons();
  const [inviting, setInviting] = useState(false);
  const [changed, setChanged] = useState<Person | null>(null);
  const [removed, setRemoved] = useState<Person | null>(null);
  const me = data?.find(({ self }) => self)?.role;
  return (
    <>
      <div class="heading">
        <h1>People</h1>
        {atLeast(me, "admin") && (
          <button type="button" class="primary" onClick={() => setInviting(true)}>Invite</button>
        )}
      </div>
      <p class="lead">
        Everybody signs in with a password of their own. Who did what is in the <Link href="/audit">audit log</Link>.
      </p>
      {error && <Failure error={error} retry={() => void refetch()} />}
      {!data && !error && <Loading what="persons" />}
      {data && (
        <div class="card scroll" tabIndex={0} role="group" aria-label="People">
          <table class="stacked">
            <thead>
              <tr>
                <th scope="col">Name</th><th scope="col">E-mail</th><th scope="col">Role</th>
                <th scope="col"><span class="unseen">Actions</span></th>
              </tr>
            </thead>
            <tbody>
              {data.map((person) => (
                <tr key={person.id}>
                  <th scope="row">{person.name}{person.self && " (you)"}</th>
                  <td>{person.email}</td>
                  <td>{roleName(person.role)}</td>
                  <td>
                    {me === "owner" && (
                      <span class="actions">
                        <Act what="Change role" of={person} onClick={setChanged} />
                        <Act what="Remove" of={person} onClick={setRemoved} />
                      </span>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {atLeast(me, "admin") && <Invitations />}
      {inviting && me && <Invite role={me} onClose={() => setInviting(false)} />}
      {changed && <ChangeRole person={changed} onClose={() => setChanged(null)} />}
      {removed && <Remove person={removed} onClose={() => setRemoved(null)} />}
    </>
  );
}

const roleName = (role: Role) => roles.find(([name]) => name === role)?.[1].split(":")[0] ?? role;

function Act({ what, of, onClick }: { what: string; of: Person; onClick: (person: Person) => void }) {
  return <button type="button" onClick={() => onClick(of)}>{what}<span class="unseen"> of {of.name}</span></button>;
}

function Invitations() {
  const { data, error, refetch } = useQuery({
    queryKey: keys.invitations, queryFn: () => unwrap(api.GET("/api/v1/invitations")),
  });
  const [revoked, setRevoked] = useState<Invitation | null>(null);
  const failure = error && <Failure error={error} retry={() => void refetch()} />;
  if (!data?.length) return failure;
  return (
    <section class="card" aria-labelledby="invitations">
      <h2 id="invitations">Open invitations</h2>
      {failure}
      <ul class="plain">
        {data.map((invitation) => (
          <li key={invitation.id}>
            {invitation.email}, {roleName(invitation.role)}, by {invitation.invited_by},
            until <Timestamp at={invitation.expires_at} />{" "}
            <button type="button" onClick={() => setRevoked(invitation)}>
              Revoke<span class="unseen"> {invitation.email}</span>
            </button>
          </li>
        ))}
      </ul>
      {revoked && <Revoke invitation={revoked} onClose={() => setRevoked(null)} />}
    </section>
  );
}

function Revoke({ invitation, onClose }: { invitation: Invitation; onClose: () => void }) {
  const remove = async () => {
    const path = { invitation_id: invitation.id };
    await unwrap(api.DELETE("/api/v1/invitations/{invitation_id}", { params: { path } }));
    await refresh(keys.invitations);
    onClose();
  };
  return (
    <Confirm
      title={`Revoke the invitation of ${invitation.email}?`} action="Revoke" onConfirm={remove} onClose={onClose}
    >
      <p>Its link stops working.</p>
    </Confirm>
  );
}

function Invite({ role: mine, onClose }: { role: Role; onClose: () => void }) {
  const [email, setEmail] = useState("");
  const [role, setRole] = useState<Role>("operator");
  const [link, setLink] = useState<string | null>(null);
  if (link !== null) {
    return (
      <Secret title={`Invitation of ${email}`} text={link} onClose={onClose}>
        <p>Send this link to {email} yourself. It works once, for 72 hours, and is not shown again.</p>
      </Secret>
    );
  }
  return (
    <Dialog title="Invite" onClose={onClose}>
      <Form
        action="Invite" onCancel={onClose}
        onSubmit={async () => {
          const { code } = await unwrap(api.POST("/api/v1/invitations", { body: { email, role } }));
          setLink(`${location.origin}/join#${code}`);
          await refresh(keys.invitations);
        }}
      >
        <Field label="E-mail" name="email" type="email" value={email} onInput={setEmail} maxLength={120} autoFocus />
        <Select label="Role" value={role} onChange={setRole} options={rolesUpTo(mine)} />
      </Form>
    </Dialog>
  );
}

function ChangeRole({ person, onClose }: { person: Person; onClose: () => void }) {
  const [role, setRole] = useState<Role>(person.role);
  const [left, setLeft] = useState<Left>([]);
  if (left.length > 0) return <LeftKeys of={person} left={left} onClose={onClose} />;
  return (
    <Dialog title={`Role of ${person.name}`} onClose={onClose}>
      <Form
        action="Change role" onCancel={onClose}
        onSubmit={async () => {
          const path = { person_id: person.id };
          const { api_keys: made } = await unwrap(
            api.PATCH("/api/v1/persons/{person_id}", { params: { path }, body: { role } }));
          await refresh(keys.persons);
          if (made.length > 0) setLeft(made);
          else onClose();
        }}
      >
        <Select label="Role" value={role} onChange={setRole} options={roles} />
        <p class="hint">{person.name} must sign in again, and invitations by {person.name} end.</p>
      </Form>
    </Dialog>
  );
}

type Left = readonly { name: string; prefix: string }[];

/** API keys of somebody who is gone, or may make none any more. */
function LeftKeys({ of: { name }, left, onClose }: { of: Person; left: Left; onClose: () => void }) {
  return (
    <Dialog title={`${name} made API keys`} onClose={onClose}>
      <p>
        They still work: {left.map((key) => `${key.name} (${key.prefix}…)`).join(", ")}. Revoke those
        that {name} may know.
      </p>
      <div class="actions">
        <Link class="button primary" href="/keys">Go to API keys</Link>
        <button type="button" onClick={onClose}>Keep them</button>
      </div>
    </Dialog>
  );
}

function Remove({ person, onClose }: { person: Person; onClose: () => void }) {
  const [left, setLeft] = useState<Left>([]);
  const remove = async () => {
    const path = { person_id: person.id };
    const { api_keys: made } = await unwrap(api.DELETE("/api/v1/persons/{person_id}", { params: { path } }));
    await refresh(keys.persons);
    if (made.length > 0) setLeft(made);
    else onClose();
  };
  if (left.length > 0) return <LeftKeys of={person} left={left} onClose={onClose} />;
  return (
    <Confirm title={`Remove ${person.name}?`} action="Remove" onConfirm={remove} onClose={onClose}>
      <p>{person.name} is signed out at once. The name stays in the audit log and on incidents.</p>
    </Confirm>
  );
}
