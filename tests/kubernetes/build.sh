# Builds Kubernetes' own parts from Debian's source package, and unpacks from Debian's packages what they need beside
# them. Nothing is installed. Runs in an empty folder; what is to be kept is below `kept`. Variables: PROGRAM (cluster.go),
# SOURCES (a folder with apt's lists of where packages are, those of source packages included).
set -eu
mkdir -p lists/partial cache/archives/partial debs root kept/bin kept/cni
apt=(-qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$SOURCES" -o "Dir::State::lists=$PWD/lists"
  -o "Dir::Cache=$PWD/cache" -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update
(cd debs && apt-get "${apt[@]}" download golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev etcd-server \
  containerd runc containernetworking-plugins kubernetes-client busybox-static)
for one in debs/*.deb; do dpkg-deb --extract "$one" root; done
cp root/usr/bin/{etcd,containerd,containerd-shim-runc-v2,ctr,kubectl} root/usr/sbin/runc root/bin/busybox kept/bin/
# SkyPilot insists on an nc that tells its options; it is not used for pods without SSH.
printf '#!/bin/sh\n[ "$1" = -h ] || exec "${0%%/*}/busybox" nc "$@"\n' > kept/bin/nc
chmod 755 kept/bin/nc
cp root/usr/lib/cni/{bridge,host-local,loopback} kept/cni/

apt-get "${apt[@]}" source --download-only kubernetes
source="$PWD/go/src/k8s.io/kubernetes"
mkdir -p "$source"
tar --extract --gzip --file kubernetes_*.orig.tar.gz --directory "$source" --strip-components 1
tar --extract --xz --file kubernetes_*.debian.tar.xz --directory "$source"
export GOROOT="$PWD/root/usr/lib/go-1.19" GOPATH="$PWD/go" GOCACHE="$PWD/gocache" GOFLAGS='' GOPROXY=off GO111MODULE=off \
  CGO_ENABLED=0
built="$PWD/kept/bin"
cd "$source"
while read -r name; do patch --strip 1 --silent < "debian/patches/$name"; done < debian/patches/series
# The reflect2 that comes with it crashes with maps of Go ≥ 1.18; Debian's own does not.
rm vendor/github.com/modern-go/reflect2/*.go vendor/github.com/modern-go/reflect2/*.s
cp "$GOROOT"/../../share/gocode/src/github.com/modern-go/reflect2/*.{go,s} vendor/github.com/modern-go/reflect2/
# The API server's schema is not in the source; its generator is.
"$GOROOT/bin/go" build -o "$source/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
described="$(grep -rlE '^// \+k8s:openapi-gen=' --include='*.go' pkg staging/src/k8s.io |
  grep -vE '_test\.go|testdata|code-generator|sample|kube-openapi/test' | xargs -n1 dirname |
  sed 's|^staging/src/|k8s.io/kubernetes/vendor/|; s|^pkg/|k8s.io/kubernetes/pkg/|' | sort -u | paste -sd,)"
./openapi-gen --logtostderr -i "$described" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
  -h hack/boilerplate/boilerplate.generatego.txt -r "$source/violations.txt"
mkdir cmd/cluster
cp "$PROGRAM" cmd/cluster/main.go
about=k8s.io/kubernetes/vendor/k8s.io/component-base/version
"$GOROOT/bin/go" build -tags providerless,dockerless -o "$built/cluster" \
  -ldflags "-s -w -X $about.gitVersion=v1.20.2 -X $about.gitMajor=1 -X $about.gitMinor=20" ./cmd/cluster
for part in kube-apiserver kube-controller-manager kube-scheduler kubelet; do ln -s cluster "$built/$part"; done
