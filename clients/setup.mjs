// A fresh tenant for each test, made through the proxy's admin API.
const base = process.env.DOMICILE_URL;
if (!base) throw new Error("set DOMICILE_URL to a proxy, for example http://127.0.0.1:8090");

let n = 0;

// tenant creates one and answers the URL that a libSQL client is given.
export async function tenant() {
  const name = `c${process.pid}-${++n}-${Math.floor(Math.random() * 1e9)}`;
  const answer = await fetch(`${base}/_shard/tenants/${name}`, { method: "PUT" });
  if (answer.status !== 201) throw new Error(`create ${name}: ${answer.status} ${await answer.text()}`);
  return `${base}/t/${name}/db`;
}
