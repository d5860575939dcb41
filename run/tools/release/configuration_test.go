package release

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cloudspannerecosystem/memefish"
	"github.com/cloudspannerecosystem/memefish/ast"
	"golang.org/x/mod/semver"

	"coldaisle.dev/shared/must"
)

// The checks of this file read the configuration and need neither terraform nor a provider.
// They find what a mocked provider lets pass and Google refuses, or what the first deployment
// of a new project shows. TestSabotages holds them to it.

// sources are files by path, from the repository's root.
type sources map[string]string

func readSources(t *testing.T) sources {
	t.Helper()
	all := sources{}
	for _, folder := range []string{"terraform", ".ci", "run/tools/release", "shared/readings/bqreadings/sql"} {
		must.Do(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.Contains(path, "/.terraform") || strings.HasSuffix(path, ".zip") {
				return err
			}
			content, err := os.ReadFile(path)
			relative, _ := filepath.Rel(root, path)
			all[relative] = string(content)
			return err
		}))
	}
	for _, path := range []string{"cloudbuild.yaml", "go.mod", "docs/deploy.md", "docs/operations.md"} {
		all[path] = read(t, path)
	}
	return all
}

// matching is the text of the files under a folder whose names end so, without comments.
func (s sources) matching(under, suffix string) string {
	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(s)) {
		if strings.HasPrefix(path, under) && strings.HasSuffix(path, suffix) {
			text.WriteString("\n" + regexp.MustCompile(`(?m)(^|\s)#.*$`).ReplaceAllString(s[path], ""))
		}
	}
	return text.String()
}

// configurationChecks return what is wrong, by name.
func configurationChecks() map[string]func(sources) []string {
	return map[string]func(sources) []string{
		"roles": checkRoles, "services": checkServices, "agents": checkAgents, "literals": checkLiterals, "images": checkImages,
		"substitutions": checkSubstitutions, "provider": checkProvider, "unread": checkUnread, "sql": checkSQL,
		"tainted": checkTainted, "policies": checkPolicies,
	}
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	for name, check := range configurationChecks() {
		for _, problem := range check(readSources(t)) {
			t.Errorf("%s: %s", name, problem)
		}
	}
}

// resources are the types of resources that the root configuration and its modules make.
func (s sources) resources() []string {
	var types []string
	for path, text := range s {
		if strings.HasPrefix(path, "terraform/") && strings.HasSuffix(path, ".tf") && !strings.HasPrefix(path, "terraform/bootstrap/") {
			types = append(types, found(text, `(?m)^resource "(google_\w+)"`)...)
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// needs compares what is there with what the resources in use need. A need is a prefix of
// resource types; one that begins with "=" is no resource's.
func needs(what string, types, there []string, table map[string][]string) []string {
	var problems []string
	covered := map[string]bool{}
	for name, prefixes := range table {
		used := false
		for _, prefix := range prefixes {
			used = used || strings.HasPrefix(prefix, "=")
			for _, kind := range types {
				if strings.HasPrefix(kind, prefix) {
					used, covered[kind] = true, true
				}
			}
		}
		if is := slices.Contains(there, name); is != used {
			problems = append(problems, fmt.Sprintf("%s %s: is there %t, is needed %t", what, name, is, used))
		}
	}
	for _, name := range there {
		if _, ok := table[name]; !ok {
			problems = append(problems, fmt.Sprintf("%s %s: nobody knows what it is for", what, name))
		}
	}
	for _, kind := range types {
		if !covered[kind] {
			problems = append(problems, fmt.Sprintf("no %s is known that %s needs", what, kind))
		}
	}
	return problems
}

// checkRoles compares the deployer's roles with the types of resources that it makes, by
// https://cloud.google.com/iam/docs/roles-permissions.
func checkRoles(s sources) []string {
	text := s["terraform/bootstrap/main.tf"]
	_, text, _ = strings.Cut(text, "\n  roles = {\n")
	text, _, _ = strings.Cut(text, "\n  }\n")
	types := slices.DeleteFunc(s.resources(), func(kind string) bool {
		// Given by the conditional role of google_project_iam_member.giver, and on the billing account.
		return kind == "google_project_iam_member" || kind == "google_billing_budget"
	})
	return needs("role", types, found(text, `"(roles/[\w.]+)"`), map[string][]string{
		"roles/artifactregistry.admin":   {"google_artifact_registry_"},
		"roles/bigquery.admin":           {"google_bigquery_"},
		"roles/cloudbuild.builds.editor": {"google_cloudbuild_"},
		"roles/cloudfunctions.admin":     {"google_cloudfunctions2_"},
		"roles/cloudscheduler.admin":     {"google_cloud_scheduler_"},
		"roles/cloudsql.admin":           {"google_sql_"},
		"roles/compute.loadBalancerAdmin": {
			"google_compute_backend_", "google_compute_url_map", "google_compute_target_", "google_compute_global_forwarding_rule",
			"google_compute_managed_ssl_certificate", "google_compute_region_network_endpoint_group",
		},
		"roles/compute.networkAdmin":            {"google_compute_network", "google_compute_subnetwork", "google_compute_global_address"},
		"roles/iam.serviceAccountAdmin":         {"google_service_account"},
		"roles/iam.serviceAccountUser":          {"google_cloudfunctions2_function", "google_cloud_run_v2_"},
		"roles/logging.configWriter":            {"google_logging_"},
		"roles/logging.logWriter":               {"= the release itself"},
		"roles/monitoring.editor":               {"google_monitoring_"},
		"roles/pubsub.admin":                    {"google_pubsub_"},
		"roles/run.admin":                       {"google_cloud_run_"},
		"roles/secretmanager.admin":             {"google_secret_manager_"},
		"roles/servicenetworking.networksAdmin": {"google_service_networking_"},
		"roles/serviceusage.serviceUsageAdmin":  {"google_project_service"},
		"roles/storage.admin":                   {"google_storage_"},
	})
}

// checkServices compares the APIs with the types of resources.
func checkServices(s sources) []string {
	text := s["terraform/main.tf"] + s["terraform/bootstrap/main.tf"]
	return needs("API", s.resources(), slices.Compact(slices.Sorted(slices.Values(found(text, `"([a-z]+)\.googleapis\.com"`)))), map[string][]string{
		"artifactregistry":     {"google_artifact_registry_", "google_cloudfunctions2_"},
		"bigquery":             {"google_bigquery_"},
		"bigquerystorage":      {"= ingest appends by it"},
		"billingbudgets":       {"google_billing_budget"},
		"cloudbuild":           {"google_cloudbuild_", "google_cloudfunctions2_"},
		"cloudfunctions":       {"google_cloudfunctions2_"},
		"cloudresourcemanager": {"google_project_iam_member"},
		"cloudscheduler":       {"google_cloud_scheduler_"},
		"compute":              {"google_compute_"},
		"iam":                  {"google_service_account"},
		"iamcredentials":       {"= operators act as the deployer, and the API makes tokens"},
		"logging":              {"google_logging_"},
		"monitoring":           {"google_monitoring_"},
		"pubsub":               {"google_pubsub_"},
		"run":                  {"google_cloud_run_"},
		"secretmanager":        {"google_secret_manager_"},
		"servicenetworking":    {"google_service_networking_"},
		"serviceusage":         {"google_project_service"},
		"sqladmin":             {"google_sql_"},
		"storage":              {"google_storage_"},
	})
}

// checkAgents wants Google's own accounts to exist before something is given to them, and
// none of BigQuery Data Transfer, of which nothing is left.
func checkAgents(s sources) []string {
	var problems []string
	for _, agent := range found(s.matching("terraform/", ".tf"), `@gcp-sa-([a-z]+)\.`) {
		if !strings.Contains(s["run/tools/release/bootstrap"], "services identity create --service "+agent+".googleapis.com") {
			problems = append(problems, "nothing makes the account of "+agent+" before it is given a right")
		}
	}
	for path, text := range s {
		if strings.Contains(text, "bigquery"+"datatransfer") || strings.Contains(text, "google_bigquery_"+"data_transfer") {
			problems = append(problems, path+" still uses BigQuery Data Transfer")
		}
	}
	return problems
}

// checkTainted wants deploying to say how to go on where a protected service could not be made: the provider keeps it as
// tainted, would make it anew, and refuses to delete it (cloudrunv2/resource_cloud_run_v2_service.go).
func checkTainted(s sources) []string {
	var problems []string
	protected := found(s["terraform/modules/api/main.tf"], `(?s)\nresource "(google_cloud_run_v2_\w+" "\w+)" \{[^}]*?deletion_protection += var\.`)
	for _, resource := range protected {
		command := "terraform untaint 'module.api." + strings.ReplaceAll(resource, `" "`, ".") + "[0]'"
		if !strings.Contains(s["docs/deploy.md"], command) {
			problems = append(problems, "after a failure nobody says "+command)
		}
	}
	if len(protected) == 0 {
		problems = append(problems, "no service is protected")
	}
	return problems
}

// checkPolicies wants deploying to name the policy of an organisation that forbids what the configuration may ask for.
func checkPolicies(s sources) []string {
	var problems []string
	for attribute, policy := range map[string]string{
		"invoker_iam_disabled": "run.managed.requireInvokerIam", "ipv4_enabled": "sql.restrictPublicIp", "google_service_networking_connection": "compute.restrictVpcPeering",
	} {
		if !strings.Contains(s.matching("terraform/modules/", ".tf"), attribute) || !strings.Contains(s["docs/deploy.md"], "`"+policy+"`") {
			problems = append(problems, "docs/deploy.md has no "+policy+" because of "+attribute)
		}
	}
	return problems
}

// checkLiterals wants regions and projects to be chosen in one place.
func checkLiterals(s sources) []string {
	var problems []string
	for path, text := range s {
		if !strings.HasPrefix(path, "terraform/") || !strings.HasSuffix(path, ".tf") || strings.HasSuffix(path, "variables.tf") {
			continue
		}
		for line := range strings.SplitSeq(text, "\n") {
			line, _, _ = strings.Cut(line, " # ")
			if regexp.MustCompile(`"[^"]*\b(us|europe|asia|australia|southamerica|northamerica|me|africa)-[a-z]+[0-9]+\b`).MatchString(line) {
				problems = append(problems, path+" names a region: "+line)
			}
			if regexp.MustCompile(`^\s*project(_id)? += "`).MatchString(line) {
				problems = append(problems, path+" names a project: "+line)
			}
		}
	}
	return problems
}

// checkImages compares the versions of steps with what they must have, and machines with
// https://cloud.google.com/build/docs/api/reference/rest/v1/projects.builds#machinetype.
func checkImages(s sources) []string {
	var problems []string
	builds := s["cloudbuild.yaml"] + s[".ci/checks.yaml"] + s["terraform/modules/nightly/main.tf"]
	wanted := map[string]string{
		"hashicorp/terraform": strings.Join(found(s["terraform/versions.tf"], `required_version = ">= ([\d.]+)"`), ""),
		"golang":              strings.Join(found(s["go.mod"], `(?m)^go (\d+\.\d+)`), ""),
		"node":                "20",
	}
	for image, least := range wanted {
		versions := found(builds, `"?\b`+image+`:([\d.]+)`)
		if len(versions) == 0 || least == "" {
			problems = append(problems, "no step has "+image+", or no version of it is asked for")
		}
		for _, version := range versions {
			if semver.Compare("v"+version, "v"+least) < 0 {
				problems = append(problems, fmt.Sprintf("%s:%s is older than %s", image, version, least))
			}
		}
	}
	if runtimes := found(s["terraform/modules/function/main.tf"], `runtime += "go(\d+)"`); len(runtimes) != 1 || "1."+runtimes[0][1:] != wanted["golang"] {
		problems = append(problems, fmt.Sprintf("functions are built by %q, go.mod wants %s", runtimes, wanted["golang"]))
	}
	for _, machine := range found(builds, `machine_?[tT]ype: ?=? *"?(\w+)`) {
		if !slices.Contains([]string{"E2_MEDIUM", "E2_HIGHCPU_8", "E2_HIGHCPU_32", "N1_HIGHCPU_8", "N1_HIGHCPU_32"}, machine) {
			problems = append(problems, "Cloud Build has no machine "+machine)
		}
	}
	return problems
}

// checkSubstitutions compares the builds' defaults with those of terraform and of the image.
func checkSubstitutions(s sources) []string {
	var problems []string
	same := func(what string, values ...string) {
		if compact := slices.Compact(slices.Sorted(slices.Values(values))); len(compact) != 1 {
			problems = append(problems, fmt.Sprintf("%s: %q", what, compact))
		}
	}
	region := `(?s)variable "region" \{.*?default +?= "([\w-]+)"`
	same("_REGION", slices.Concat(found(s["cloudbuild.yaml"], `(?m)^  _REGION: (\S+)`),
		found(s["terraform/variables.tf"], region), found(s["terraform/bootstrap/variables.tf"], region))...)
	same("_BASE", slices.Concat(found(s["cloudbuild.yaml"], `(?m)^  _BASE: (\S+)`), found(s["run/tools/release/image/main.go"], `"base", "([^"]+)"`))...)
	return problems
}

// The parts of a service account's name, by CreatedServiceAccountNameRegex,
// ServiceDefaultAccountNameRegex and ProjectRegex of google/verify/validation.go.
const (
	projectForm = `(?:(?:[-a-z0-9]{1,63}\.)*(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?):)?(?:[0-9]{1,19}|(?:[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?))`
	accountForm = `[a-z](?:[-a-z0-9]{4,28}[a-z0-9])`
	emailForm   = `(?:` + accountForm + `@[-a-z0-9.]{1,63}\.iam\.gserviceaccount\.com|` + projectForm + `@[a-z]+.gserviceaccount.com)`
)

// providerRules are what version 7.45 of hashicorp/terraform-provider-google validates of what we write, by file below
// google/services, or google/verify. The schema that the mocked provider has knows types and nothing of this. A value
// that is known later stands for a good one, and is x where it is a part of one.
var providerRules = []struct {
	source    string
	attribute string // in the resources that have it; its value follows, or is the group at the end
	form      string
}{
	{"verify/validation.go ServiceAccountLinkRegex", `"([^"]*/serviceAccounts/[^"]*)"`, `projects/(?:-|` + projectForm + `)/serviceAccounts/(?:x|` + emailForm + `)`},
	{"verify/validation.go ServiceAccountLinkRegex", `"(?:serviceAccount:)?([^"/:]*@[^"/:]*gserviceaccount[^"/:]*)"`, emailForm},
	{"verify/validation.go ValidateRFC1035Name(6, 30)", `\baccount_id += `, accountForm},
	{"verify/validation.go ProjectRegex", `\bproject(?:_id)? += `, projectForm},
	{"verify/validation.go ValidateGCEName", `resource "google_compute_(?:network|subnetwork|region_network_endpoint_group)"[^}]*?\n  name += `, `[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?`},
	{"bigquery/resource_bigquery_dataset.go datasetIdRegexp", `\n +dataset_id += `, `[0-9A-Za-z_]+`},
	{"monitoring/resource_monitoring_slo.go", `\bslo += `, `[a-zA-Z0-9\-_:.]+`},
	{"cloudfunctions2/resource_cloudfunctions2_function.go", `\bdirect_vpc_egress += var.network == null \? null : `, `VPC_EGRESS_(?:ALL_TRAFFIC|PRIVATE_RANGES_ONLY)`},
	{"cloudfunctions2/resource_cloudfunctions2_function.go", `\bingress_settings += var.internal \? `, `ALLOW_(?:ALL|INTERNAL_ONLY|INTERNAL_AND_GCLB)`},
	{"cloudfunctions2/resource_cloudfunctions2_function.go", `\bingress_settings += var.internal \? "\w+" : `, `ALLOW_(?:ALL|INTERNAL_ONLY|INTERNAL_AND_GCLB)`},
	{"cloudrunv2/resource_cloud_run_v2_service.go, _job.go", `\n +timeout += `, `[0-9]+(?:\.[0-9]{1,9})?s`},
	{"cloudrunv2/resource_cloud_run_v2_service.go, _job.go", `\n +egress += `, `ALL_TRAFFIC|PRIVATE_RANGES_ONLY`},
	{"cloudrunv2/resource_cloud_run_v2_service.go", `\bonly_behind_load_balancer \? `, `INGRESS_TRAFFIC_(?:ALL|INTERNAL_ONLY|INTERNAL_LOAD_BALANCER)`},
	{"cloudrunv2/resource_cloud_run_v2_service.go", `\btraffic"? \{[^}]*?\n +type += `, `TRAFFIC_TARGET_ALLOCATION_TYPE_(?:LATEST|REVISION)`},
	{"sql/resource_sql_database_instance.go", `\bday += `, `[1-7]`},
	{"sql/resource_sql_database_instance.go", `\bhour += `, `[0-9]|1[0-9]|2[0-3]`},
	{"sql/resource_sql_database_instance.go", `\bconnector_enforcement += `, `NOT_REQUIRED|REQUIRED`},
	{"sql/resource_sql_database_instance.go", `\bssl_mode += `, `ALLOW_UNENCRYPTED_AND_ENCRYPTED|ENCRYPTED_ONLY|TRUSTED_CLIENT_CERTIFICATE_REQUIRED`},
	{"sql/resource_sql_database_instance.go", `\bavailability_type += [^"]*`, `REGIONAL|ZONAL`},
	{"sql/resource_sql_database_instance.go", `\bedition = `, `ENTERPRISE|ENTERPRISE_PLUS`},
	{"storage/resource_storage_bucket.go", `\bwith_state += `, `LIVE|ARCHIVED|ANY`},
	{"artifactregistry/resource_artifact_registry_repository.go", `\baction += `, `DELETE|KEEP`},
	{"artifactregistry/resource_artifact_registry_repository.go", `\btag_state += `, `TAGGED|UNTAGGED|ANY`},
	{"monitoring/resource_monitoring_alert_policy.go", `\bcombiner += `, `AND|OR|AND_WITH_MATCHING_RESOURCE`},
	{"monitoring/resource_monitoring_alert_policy.go", `\bcomparison += `, `COMPARISON_(?:GT|GE|LT|LE|EQ|NE)`},
	{"monitoring/resource_monitoring_alert_policy.go", `\bseverity += `, `CRITICAL|ERROR|WARNING`},
	{"logging/resource_logging_metric.go", `\bmetric_kind += `, `DELTA|GAUGE|CUMULATIVE`},
	{"logging/resource_logging_metric.go", `\bvalue_type += `, `BOOL|INT64|DOUBLE|STRING|DISTRIBUTION|MONEY`},
	{"cloudbuild/resource_cloudbuild_trigger.go", `\blogging += `, `LEGACY|GCS_ONLY|STACKDRIVER_ONLY|CLOUD_LOGGING_ONLY|NONE`},
	{"cloudbuild/resource_cloudbuild_trigger.go", `\brepo_type += `, `UNKNOWN|CLOUD_SOURCE_REPOSITORIES|GITHUB|BITBUCKET_SERVER`},
	{"compute/resource_compute_global_address.go", `\baddress_type += `, `EXTERNAL|INTERNAL`},
	{"compute/resource_compute_backend_service.go", `\bload_balancing_scheme += `, `EXTERNAL|INTERNAL_SELF_MANAGED|INTERNAL_MANAGED|EXTERNAL_MANAGED`},
	{"compute/resource_compute_backend_service.go", `\bprotocol += `, `HTTP|HTTPS|HTTP2|TCP|SSL|UDP|GRPC|UNSPECIFIED|H2C`},
	{"compute/resource_compute_region_network_endpoint_group.go", `\bnetwork_endpoint_type += `, `SERVERLESS|PRIVATE_SERVICE_CONNECT|INTERNET_IP_PORT|INTERNET_FQDN_PORT|GCE_VM_IP_PORTMAP`},
	{"bigquery/resource_bigquery_table.go", `time_partitioning \{\n +type += `, `DAY|HOUR|MONTH|YEAR`},
	{"sql/resource_sql_user.go", `resource "google_sql_user"[^}]*?\n  type += `, `BUILT_IN|CLOUD_IAM_USER|CLOUD_IAM_SERVICE_ACCOUNT|CLOUD_IAM_GROUP`},
}

// checkProvider looks for values that the provider refuses, and for rules that meet none.
func checkProvider(s sources) []string {
	var problems []string
	resources := maps.Clone(s)
	maps.DeleteFunc(resources, func(path, _ string) bool {
		return strings.HasSuffix(path, "/variables.tf") || strings.HasSuffix(path, "/validation.tftest.hcl") // which gives wrong values on purpose
	})
	text := resources.matching("terraform/", ".tf") + resources.matching("terraform/", ".hcl")
	text = regexp.MustCompile(`(?m)^ *description +=.*$`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`\$\{[^}"]*\}`).ReplaceAllString(text, "x") // known later
	for _, rule := range providerRules {
		place := rule.attribute
		if !strings.HasSuffix(place, `)"`) {
			place += `"?([^"\s]+)"?`
		}
		values := found(text, place)
		values = slices.DeleteFunc(values, func(value string) bool {
			return regexp.MustCompile(`^(var|local|each|module|google_\w+)[.\[]`).MatchString(value) || strings.Contains(value, "(")
		})
		if len(values) == 0 {
			problems = append(problems, rule.attribute+" of "+rule.source+" meets nothing")
		}
		for _, value := range values {
			if !regexp.MustCompile(`^(?:` + rule.form + `)$`).MatchString(value) {
				problems = append(problems, fmt.Sprintf("the provider refuses %s%q: %s", strings.TrimSpace(rule.attribute), value, rule.source))
			}
		}
	}
	return problems
}

// checkUnread looks for variables that nothing reads, and for outputs that neither another
// module, a test, a script nor a page does.
func checkUnread(s sources) []string {
	var problems []string
	byFolder := map[string]string{}
	for path, text := range s {
		if strings.HasPrefix(path, "terraform/") && strings.HasSuffix(path, ".tf") {
			byFolder[filepath.Dir(path)] += "\n" + text
		}
	}
	var readers strings.Builder
	for path, text := range s {
		if !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "terraform/modules/") || strings.HasSuffix(path, ".hcl") {
			readers.WriteString(text)
		}
	}
	for folder, text := range byFolder {
		for _, name := range found(text, `(?m)^variable "(\w+)"`) {
			body := regexp.MustCompile(`(?ms)^variable "`+name+`" \{.*?^\}`).ReplaceAllString(text, "")
			if !regexp.MustCompile(`\bvar\.` + name + `\b`).MatchString(body) {
				problems = append(problems, folder+": variable "+name)
			}
		}
		for _, name := range found(text, `(?m)^output "(\w+)"`) {
			if !regexp.MustCompile(`(\.|terraform output -(raw|json) )` + name + `\b`).MatchString(readers.String()) {
				problems = append(problems, folder+": output "+name)
			}
		}
	}
	return problems
}

// checkSQL looks for names in BigQuery's statements that BigQuery does not know: columns that
// the table has not, and functions that GoogleSQL has not. The analyzer itself runs at night.
func checkSQL(s sources) []string {
	var problems []string
	var columns []struct{ Name string }
	if err := json.Unmarshal([]byte(s["terraform/modules/readings/schema.json"]), &columns); err != nil {
		return []string{err.Error()}
	}
	functions := []string{"ANY_VALUE", "DATE", "IFNULL", "UNIX_MICROS"}
	for path, text := range s {
		if !strings.HasSuffix(path, ".sql") {
			continue
		}
		query, err := memefish.ParseQuery(path, strings.NewReplacer("{{readings}}", "readings", "{{days}}", "'2026-11-20'").Replace(text))
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		known := map[string]bool{"readings": true, "OFFSET": true}
		for _, column := range columns {
			known[column.Name] = true
		}
		for node := range ast.Preorder(query) {
			if alias, ok := node.(*ast.AsAlias); ok {
				known[alias.Alias.Name] = true
			}
		}
		for node := range ast.Preorder(query) {
			switch n := node.(type) {
			case *ast.CallExpr:
				name := n.Func.Idents[0].Name
				if known[name] = true; !slices.Contains(functions, name) {
					problems = append(problems, path+": GoogleSQL has no function "+name+", or nobody has looked")
				}
			case *ast.Ident:
				if !known[n.Name] {
					problems = append(problems, path+": nothing is called "+n.Name)
				}
			}
		}
	}
	return problems
}

// TestSabotages breaks the configuration in the ways of testdata/sabotages, one at a time: the check that the line
// names must find it, and say so. .ci/terraform does the same for those that terraform's own tests find.
func TestSabotages(t *testing.T) {
	t.Parallel()
	whole := readSources(t)
	count := 0
	for line := range strings.Lines(read(t, "run/tools/release/testdata/sabotages")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		count++
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 4 {
			t.Fatalf("%q has %d fields", line, len(fields))
		}
		path, expression, by, message := fields[0], fields[1], fields[2], fields[3]
		sed := exec.CommandContext(t.Context(), "sed", expression)
		sed.Stdin = strings.NewReader(whole[path])
		broken := must.Get(sed.Output())(t)
		changed := whole[path] != "" && string(broken) != whole[path]
		must.Equal(t, path+": "+expression+" changes something", true, changed)
		if by == "terraform" { // by the message of an assertion
			asserted := strings.Contains(whole.matching("terraform/tests/", ".hcl"), message)
			must.Equal(t, "an assertion of terraform's tests says "+message, true, asserted)
			continue
		}
		sabotaged := maps.Clone(whole)
		sabotaged[path] = string(broken)
		problems := strings.Join(configurationChecks()[by](sabotaged), "\n")
		must.Contain(t, fmt.Sprintf("%s: %s: check %s", path, expression, by), problems, message)
	}
	must.Equal(t, "sabotages", 34, count)
}
